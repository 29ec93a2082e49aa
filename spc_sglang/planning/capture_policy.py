"""Where to capture checkpoints while a prompt is being prefilled.

One prefill forward computes the tokens `(prefix, end]` of a request. The kernels can hand
out the recurrent state at `prefix + k * grid` only (their chunk grid restarts at the first
token of the forward), so a policy proposes depths and `reachable` moves each of them down to
that grid. Everything here is a pure function of token counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extend:
    """One request's part of one prefill forward, all depths in tokens from the root.

    `overlap_depth` is the full-KV match t of the request and `restore_depth` the depth l it
    resumed from (l <= t); `engine_depth` is the depth at which the engine itself stores a
    state in this forward, or None. `overlaps` are (depth, weight) of past requests that left the
    path between restore and overlap depth, `slack` says that the pool has free slots,
    and `continues` that the request went on from the tail of an earlier one.
    """

    prefix: int
    end: int
    prompt: int
    grid: int
    overlap_depth: int = 0
    restore_depth: int = 0
    engine_depth: int | None = None
    overlaps: tuple[tuple[int, float], ...] = ()
    slack: bool = False
    continues: bool = False

    def __post_init__(self) -> None:
        if self.grid < 1:
            raise ValueError(f"grid must be at least 1, got {self.grid}")
        if not 0 <= self.prefix < self.end:
            raise ValueError(f"need 0 <= prefix < end, got {self.prefix} and {self.end}")

    @property
    def branch_depth(self) -> int | None:
        """The match depth when the request resumed from less than it, else None."""
        return self.overlap_depth if self.overlap_depth > self.restore_depth else None


def reachable(extend: Extend, depths: Iterable[int]) -> tuple[int, ...]:
    """Move depths down to the forward's chunk grid; drop what it cannot reach.

    A depth that lands on the start of the forward, on the engine's own checkpoint or on an
    earlier depth is dropped. The order of the proposals is kept.
    """
    kept: list[int] = []
    for depth in depths:
        if not extend.prefix < depth <= extend.end:
            continue
        snapped = extend.prefix + (depth - extend.prefix) // extend.grid * extend.grid
        if snapped > extend.prefix and snapped != extend.engine_depth and snapped not in kept:
            kept.append(snapped)
    return tuple(kept)
