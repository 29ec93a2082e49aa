"""A small client for SGLang's native HTTP interface, in token ids."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import requests

from tests.limits import HANG_LIMIT_S

FIRST_TOKEN, LAST_TOKEN = 4, 259  # the byte-level vocabulary without its special tokens


@dataclass(frozen=True)
class Answer:
    """One completion: prompt tokens taken from the cache, output tokens and their logprobs."""

    cached: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    def distance(self, other: Answer) -> float:
        """Largest difference of a logprob; infinite if the tokens differ."""
        if self.tokens != other.tokens:
            return float("inf")
        return max(abs(a - b) for a, b in zip(self.logprobs, other.logprobs, strict=True))


class Client:
    """Requests against one running server."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def generate(self, prompt: Sequence[int], *, new_tokens: int = 6) -> Answer:
        return self.generate_together([prompt], new_tokens=new_tokens)[0]

    def generate_together(
        self, prompts: Sequence[Sequence[int]], *, new_tokens: int = 6
    ) -> list[Answer]:
        """All prompts in one message to the scheduler, answers in their order."""
        body = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": new_tokens,
                "ignore_eos": True,
            },
            "return_logprob": True,
        }
        reply = requests.post(self.base_url + "/generate", json=body, timeout=HANG_LIMIT_S)
        reply.raise_for_status()
        return [_answer(entry["meta_info"]) for entry in reply.json()]

    def abandon(self, prompt: Sequence[int], *, after_s: float) -> None:
        """Send a request and hang up before its answer."""
        body = {"input_ids": list(prompt), "sampling_params": {"max_new_tokens": 400}}
        try:
            requests.post(self.base_url + "/generate", json=body, timeout=after_s)
        except requests.exceptions.ReadTimeout:
            return

    def flush(self) -> None:
        """Empty the cache; waits until the server is idle."""
        for _ in range(1000):
            reply = requests.post(self.base_url + "/flush_cache", timeout=HANG_LIMIT_S)
            if reply.status_code == 200:
                return
            time.sleep(0.1)
        raise TimeoutError("the server did not become idle")

    def cold(self, prompt: Sequence[int]) -> Answer:
        """The answer of an empty cache."""
        self.flush()
        answer = self.generate(prompt)
        assert answer.cached == 0, answer
        return answer

    def report(self) -> dict[str, Any]:
        """Our counters and slot accounting."""
        reply = requests.get(self.base_url + "/server_info", timeout=HANG_LIMIT_S)
        reply.raise_for_status()
        return reply.json()["internal_states"][0]["spc"]


def _answer(meta: dict[str, Any]) -> Answer:
    outputs = meta["output_token_logprobs"]
    return Answer(
        meta["cached_tokens"],
        tuple(entry[1] for entry in outputs),
        tuple(entry[0] for entry in outputs),
    )


def tokens(count: int, seed: int) -> list[int]:
    """Random prompt tokens, reproducible."""
    rng = random.Random(seed)
    return [rng.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]
