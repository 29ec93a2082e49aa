"""One cell: a workload at one pool size, on both servers and in the simulator."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from benchmarks.live_traces.workload import Workload
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.simulator import Simulator

SLOTS_OF_RUNNING = 3
"""A running request's own state and its two tracking buffers (`extra_buffer`).

One of the buffers becomes the prompt end in the cache, so between two requests the cache holds one
state more than the simulator has slots; but a server must evict before it inserts.
"""
CHUNK_TOKENS = 8192
REQUEST_LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Served:
    """What one server did with a workload, by request."""

    cached: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    seconds: float
    report: dict[str, Any] | None
    """Our counters; None from stock."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table; shares are 0..1 of the KV-reusable tokens."""

    trace: str
    slots: int
    requests: int
    reusable_tokens: int
    stock_share: float
    spc_share: float
    simulated_share: float
    stock_recomputed_tokens: int
    spc_recomputed_tokens: int
    spc_captures_per_request: float
    """Slots that we took, beside the prompt end that the engine stores by itself."""
    simulated_captures_per_request: float
    """Prompt ends included."""
    outputs_differ: int
    most_logprob_difference: float
    spc_counters: dict[str, Any]
    seconds: float

    @property
    def above_stock(self) -> bool:
        return self.spc_share > self.stock_share

    @property
    def off_simulator(self) -> float:
        """Live minus simulated share, in points."""
        return 100 * (self.spc_share - self.simulated_share)


def serve(workload: Workload, slots: int, backend: str | None, model: Path, log: Path) -> Served:
    """All prompts one after the other, one new token each, on a server of its own."""
    config = CpuServerConfig(
        model,
        max_total_tokens=workload.distinct_tokens + 4 * workload.longest_prompt,
        max_mamba_cache_size=slots + SLOTS_OF_RUNNING,
        max_running_requests=1,
        context_length=workload.longest_prompt + 16,
        chunked_prefill_size=CHUNK_TOKENS,
        radix_cache_backend=backend,
        log_level="warning",
    )
    start = time.perf_counter()
    with running_server(config, log) as server, requests.Session() as session:
        answers = [_generate(session, server.base_url, prompt) for prompt in workload.prompts()]
        info = session.get(server.base_url + "/server_info", timeout=30).json()
    return Served(
        *(tuple(column) for column in zip(*answers, strict=True)),
        seconds=time.perf_counter() - start,
        report=info["internal_states"][0].get("spc"),
    )


def _generate(
    session: requests.Session, base_url: str, prompt: list[int]
) -> tuple[int, int, float]:
    body = {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True},
        "return_logprob": True,
    }
    reply = session.post(base_url + "/generate", json=body, timeout=REQUEST_LIMIT_S)
    reply.raise_for_status()
    meta = reply.json()["meta_info"]
    logprob, token = meta["output_token_logprobs"][0][:2]
    return meta["cached_tokens"], token, logprob


def run(workload: Workload, slots: int, model: Path, logs: Path) -> Cell:
    """Both servers and the simulator; AssertionError if a server resumed what nobody sent."""
    name = f"{workload.cut.format}-{slots}"
    stock = serve(workload, slots, None, model, logs / f"{name}-stock.log")
    ours = serve(workload, slots, "spc", model, logs / f"{name}-spc.log")
    assert stock.report is None and ours.report is not None, "a server ran the wrong backend"
    for served in (stock, ours):
        pairs = zip(served.cached, workload.reusable, strict=True)
        assert all(cached <= reusable for cached, reusable in pairs), name
    simulated = Simulator(workload.trace, CONTENDERS["spc"](slots, workload.trace)).run()
    assert tuple(simulated.matched_tokens) == workload.reusable, name
    reusable = sum(workload.reusable)
    distances = [abs(a - b) for a, b in zip(stock.logprobs, ours.logprobs, strict=True)]
    return Cell(
        trace=workload.cut.format,
        slots=slots,
        requests=len(workload),
        reusable_tokens=reusable,
        stock_share=sum(stock.cached) / reusable,
        spc_share=sum(ours.cached) / reusable,
        simulated_share=sum(simulated.resumed_tokens) / reusable,
        stock_recomputed_tokens=reusable - sum(stock.cached),
        spc_recomputed_tokens=reusable - sum(ours.cached),
        spc_captures_per_request=ours.report["captured"] / len(workload),
        simulated_captures_per_request=simulated.num_captures / len(workload),
        outputs_differ=sum(a != b for a, b in zip(stock.tokens, ours.tokens, strict=True)),
        most_logprob_difference=max(distances),
        spc_counters=ours.report,
        seconds=round(stock.seconds + ours.seconds, 1),
    )
