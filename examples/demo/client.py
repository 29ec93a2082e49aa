"""A streaming client for SGLang's /generate, with nothing but the standard library."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Answer:
    """One finished generation; `logprobs[i]` belongs to `output_ids[i]`."""

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cached_tokens: int
    ttft_s: float  # from sending the request to the first token


class GenerateClient:
    """Talks to one server; raises urllib.error.URLError when it does not answer."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    def generate(self, input_ids: Sequence[int], max_new_tokens: int) -> Answer:
        """Greedy continuation of exactly `max_new_tokens` tokens."""
        body = {
            "input_ids": list(input_ids),
            "sampling_params": {
                "max_new_tokens": max_new_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
            "return_logprob": True,
            "stream": True,
        }
        started = time.perf_counter()
        ttft_s, last = None, None
        with self._open("/generate", body) as response:
            for line in response:
                event = line.removeprefix(b"data:").strip()
                if not event or event == b"[DONE]":
                    continue
                if ttft_s is None:
                    ttft_s = time.perf_counter() - started
                last = json.loads(event)
        return _answer(last, ttft_s)

    def flush_cache(self) -> None:
        """Empty the prefix cache of an idle server."""
        with self._open("/flush_cache", {}) as response:
            response.read()

    def server_info(self) -> dict[str, Any]:
        """What /server_info shows: the server's arguments and `internal_states`."""
        with self._open("/server_info") as response:
            info: dict[str, Any] = json.load(response)
        return info

    def spc_counters(self) -> dict[str, Any] | None:
        """The backend's own counters, None on a stock server."""
        counters: dict[str, Any] | None = self.server_info()["internal_states"][0].get("spc")
        return counters

    def _open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base_url + path, data, headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def _answer(last: dict[str, Any] | None, ttft_s: float | None) -> Answer:
    if last is None or ttft_s is None or "meta_info" not in last:
        raise RuntimeError(f"the server streamed no token; its last event was {last}")
    meta = last["meta_info"]
    rows = meta["output_token_logprobs"]
    return Answer(
        output_ids=tuple(row[1] for row in rows),
        logprobs=tuple(row[0] for row in rows),
        cached_tokens=meta["cached_tokens"],
        ttft_s=ttft_s,
    )
