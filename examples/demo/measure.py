"""Send the workload to one server, one request after the other, and write down what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from examples.demo.client import Answer, GenerateClient
from examples.demo.sent_tokens import SentTokens
from examples.demo.workload import Request

Encode = Callable[[str], list[int]]
WARM_UP_TOKENS = 2048


@dataclass(frozen=True)
class Measurement:
    """One request; `own_*` come from the backend's own counters, None on a stock server."""

    request: Request
    prompt_tokens: int
    matched_tokens: int
    answer: Answer
    own_matched_tokens: int | None
    own_depths: tuple[int, ...] | None  # of the checkpoints that this request left

    @property
    def resumed_tokens(self) -> int:
        return self.answer.cached_tokens

    @property
    def recomputed_tokens(self) -> int:
        """Matched tokens that were computed again for want of a recurrent state."""
        return self.matched_tokens - self.resumed_tokens


@dataclass(frozen=True)
class Run:
    """One server's measurements, in the order of sending."""

    measurements: tuple[Measurement, ...]
    distinct_tokens: int
    server_info: dict[str, Any]


def run_workload(
    base_url: str,
    requests: Sequence[Request],
    encode: Encode,
    *,
    max_new_tokens: int,
    report: Callable[[str], None],
) -> Run:
    """Closed loop with one client: one unmeasured warm-up, a flush, then every request once."""
    client = GenerateClient(base_url)
    client.generate(encode("warm up " * (WARM_UP_TOKENS // 8)), max_new_tokens)
    client.flush_cache()
    sent = SentTokens()
    conversation: list[int] = []
    before = client.spc_counters()
    measurements = []
    for number, request in enumerate(requests, 1):
        prompt = [*(conversation if request.continues else []), *encode(request.text)]
        matched = sent.match(prompt)
        answer = client.generate(prompt, max_new_tokens)
        after = client.spc_counters()
        measurement = Measurement(
            request,
            len(prompt),
            matched,
            answer,
            _difference(before, after, "matched_tokens"),
            _new_depths(before, after),
        )
        before = after
        # the last token was never an input, so the server has no KV for it
        sent.add([*prompt, *answer.output_ids[:-1]])
        if request.group == "chat":
            conversation = [*prompt, *answer.output_ids]
        measurements.append(measurement)
        report(_progress(number, len(requests), measurement))
    return Run(tuple(measurements), sent.distinct_tokens, client.server_info())


def _difference(
    before: dict[str, Any] | None, after: dict[str, Any] | None, name: str
) -> int | None:
    return None if before is None or after is None else int(after[name] - before[name])


def _new_depths(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> tuple[int, ...] | None:
    count = _difference(before, after, "published")
    if count is None or after is None:
        return None
    recent = after["recent_captures"]
    return tuple(depth for depth, _ in recent[len(recent) - count :])


def _progress(number: int, total: int, done: Measurement) -> str:
    return (
        f"  {number:3d}/{total}  {done.answer.ttft_s:6.2f} s  prompt {done.prompt_tokens:5d}  "
        f"matched {done.matched_tokens:5d}  resumed {done.resumed_tokens:5d}  {done.request.name}"
    )
