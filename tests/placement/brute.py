"""Naive twins of the placement solvers: enumeration, and the recurrence written out."""

from __future__ import annotations

from functools import cache

import numpy as np

from spc_sglang.placement.cost import Cost
from spc_sglang.placement.weights import FloatArray, IntArray


@cache
def subsets(length: int) -> tuple[IntArray, IntArray]:
    """Every checkpoint set of 1..N: sizes `[2^N]` and restore depths l(t) `[2^N, N]`."""
    masks = np.arange(1 << length)[:, None]
    member = (masks >> np.arange(length)) & 1
    positions = np.where(member, np.arange(1, length + 1), 0)
    return member.sum(axis=1), np.maximum.accumulate(positions, axis=1)


def enumerated_curve(
    dense: FloatArray, *, allowed: set[int] | None = None, cost: Cost | None = None
) -> list[float]:
    """V(0..N) over all subsets of 1..N (of `allowed`); weight of depth t at `dense[t - 1]`."""
    length = dense.size
    sizes, restore = subsets(length)
    work, restore_cost = np.arange(length + 1, dtype=float), 0.0
    if cost is not None:
        work, restore_cost = np.asarray(cost.compute(work), dtype=float), cost.restore
    # resume from l, or from the root when that is cheaper
    from_root = work[1:] - work[0]
    pays = np.where(restore > 0, work[1:] - work[restore] + restore_cost, from_root)
    totals = np.minimum(pays, from_root) @ dense
    if allowed is not None:
        forbidden = [t - 1 for t in range(1, length + 1) if t not in allowed]
        masks = np.arange(1 << length)
        totals = np.where(masks & sum(1 << i for i in forbidden), np.inf, totals)
    return [float(totals[sizes <= m].min()) for m in range(length + 1)]


def recurrence(dense: FloatArray, budget: int) -> float:
    """dp[M, N] straight from the paper's recurrence with at most M checkpoints, O(N^2 M)."""
    length = dense.size
    P = np.concatenate(([0.0], np.cumsum(dense)))
    T = np.concatenate(([0.0], np.cumsum(dense * np.arange(1, length + 1))))
    previous = T.copy()
    for _ in range(budget):
        row = T.copy()
        for j in range(1, length + 1):
            for s in range(1, j + 1):
                segment = (T[j] - T[s - 1]) - s * (P[j] - P[s - 1])
                row[j] = min(row[j], previous[s - 1] + segment)
        previous = row
    return float(previous[length])
