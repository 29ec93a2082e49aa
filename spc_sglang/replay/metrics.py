"""What a replay says: one row a policy and pool size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spc_sglang.replay.model_bytes import ModelBytes
from spc_sglang.replay.simulator import Outcome


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one replay; shares are 0..1, tokens are whole blocks of 64."""

    policy: str
    slots: int
    share: float
    """Resumed over KV-reusable tokens."""
    recomputed_over_bound: float
    """Prefilled tokens over those that full attention alone would have to prefill."""
    lost_p50_tokens: int
    lost_p95_tokens: int
    lost_p99_tokens: int
    """Percentiles over all requests of KV-reusable tokens that were recomputed."""
    captures_per_request: float
    read_back_share: float
    """Captured states that were resumed from before they were evicted."""
    reduction_factor: float | None
    """Overlap over replay tokens, E[T] / E[T - l]; None if nothing was lost."""
    resumed_tokens_per_capture: float
    peak_live: int
    """Checkpoints held at the peak."""
    kv_tokens: int
    """Tokens whose KV is resident at the end."""
    held_bytes: int | None
    """Bytes of both for the given model; None without one."""
    seconds: float


def row(
    policy: str,
    slots: int,
    outcome: Outcome,
    seconds: float,
    *,
    kv_tokens: int = 0,
    model: ModelBytes | None = None,
) -> Row:
    """Summarise one replay; ValueError if the trace had no request."""
    if not outcome.prompt_tokens:
        raise ValueError("the trace has no request: check the paths and --limit")
    prompt = np.array(outcome.prompt_tokens)
    matched = np.array(outcome.matched_tokens)
    resumed = np.array(outcome.resumed_tokens)
    lost = matched - resumed
    p50, p95, p99 = (int(p) for p in np.percentile(lost, [50, 95, 99], method="lower"))
    captures = max(1, outcome.num_captures)
    return Row(
        policy=policy,
        slots=slots,
        share=_ratio(resumed.sum(), matched.sum()),
        recomputed_over_bound=_ratio((prompt - resumed).sum(), (prompt - matched).sum()),
        lost_p50_tokens=p50,
        lost_p95_tokens=p95,
        lost_p99_tokens=p99,
        captures_per_request=round(outcome.num_captures / len(prompt), 4),
        read_back_share=round(outcome.num_read_back / captures, 4),
        reduction_factor=_ratio(matched.sum(), lost.sum()) if lost.any() else None,
        resumed_tokens_per_capture=round(float(resumed.sum()) / captures, 1),
        peak_live=outcome.peak_live,
        kv_tokens=kv_tokens,
        held_bytes=None if model is None else _held_bytes(model, outcome.peak_live, kv_tokens),
        seconds=round(seconds, 2),
    )


def _held_bytes(model: ModelBytes, checkpoints: int, kv_tokens: int) -> int:
    return checkpoints * model.state_bytes + kv_tokens * model.kv_token_bytes


def _ratio(part: np.int64, whole: np.int64) -> float:
    return round(float(part) / float(whole), 5) if whole else 1.0


HEADER = (
    f"{'policy':<12}{'slots':>7}{'share %':>9}{'recomp.':>9}{'lost p95':>10}"
    f"{'capt./req':>11}{'read back':>11}"
)


def line(row: Row) -> str:
    """One line of the table under `HEADER`."""
    return (
        f"{row.policy:<12}{row.slots:>7}{100 * row.share:>9.1f}{row.recomputed_over_bound:>9.2f}"
        f"{row.lost_p95_tokens:>10}{row.captures_per_request:>11.2f}{row.read_back_share:>11.2f}"
    )
