"""What a given set of checkpoints costs: replay of any schedule, and the saw r(t)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spc_sglang.placement.cost import Cost
from spc_sglang.placement.weights import (
    FloatArray,
    IntArray,
    OverlapWeights,
    as_depths,
    check_range,
)


def replay(weights: OverlapWeights, depths: Sequence[int], *, cost: Cost | None = None) -> float:
    """sum_t w_t (t - l(t; C)), weighted total of replay tokens (or of `cost`) for checkpoints C.

    O((n + M) log M). Raises ValueError for a checkpoint outside 1..N.
    """
    model = cost or Cost.tokens()
    checkpoints = _checkpoints(depths, weights.length)
    resume = np.concatenate(([0.0], model.resume_point(checkpoints)))
    served_by = np.searchsorted(checkpoints, weights.depths, side="right")
    return float(weights.weights @ (model.above_root(weights.depths) - resume[served_by]))


def mean_replay(
    weights: OverlapWeights, depths: Sequence[int], *, cost: Cost | None = None
) -> float:
    """E[replay] of one request that hits."""
    return replay(weights, depths, cost=cost) / weights.total


def reduction_factor(weights: OverlapWeights, depths: Sequence[int]) -> float:
    """E[T] / E[replay], the paper's figure of merit; inf when nothing is replayed."""
    remaining = mean_replay(weights, depths)
    return weights.mean_depth / remaining if remaining > 0 else float("inf")


def restore_depths(overlap_depths: Sequence[int] | IntArray, depths: Sequence[int]) -> IntArray:
    """l(t; C): the deepest checkpoint at or above each overlap depth t, 0 for the root."""
    overlaps = as_depths(overlap_depths, "overlap depth")
    positions = np.unique(np.concatenate(([0], as_depths(depths, "checkpoint"))))
    return positions[np.searchsorted(positions, overlaps, side="right") - 1]


def saw(length: int, depths: Sequence[int]) -> FloatArray:
    """r(t) = t - l(t; C) for t = 1..N, `[N]`: replay tokens by overlap depth."""
    every = np.arange(1, length + 1)
    checkpoints = _checkpoints(depths, length)
    return (every - restore_depths(every, checkpoints.tolist())).astype(np.float64)


def worst_replay(length: int, depths: Sequence[int]) -> int:
    """max_t r(t) over t = 1..N: the widest gap less one, with c_0 = 0 and c_{M+1} = N + 1."""
    edges = np.concatenate(([0], _checkpoints(depths, length), [length + 1]))
    return int(np.diff(edges).max()) - 1


def _checkpoints(depths: Sequence[int], length: int) -> IntArray:
    array = np.unique(as_depths(depths, "checkpoint"))
    check_range(array, length, "checkpoint")
    return array
