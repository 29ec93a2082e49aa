"""Schedules that ignore the overlap law (and the greedy one, which does not look ahead)."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import numpy as np

from spc_sglang.placement.weights import OverlapWeights, check_budget


def balanced(length: int, budget: int) -> tuple[int, ...]:
    """M checkpoints whose M + 1 gaps (c_0 = 0, c_{M+1} = N + 1) differ by at most one.

    Exactly these schedules are optimal for the uniform law and for the worst case. M above N
    gives every position. c_i = ceil(i (N + 1) / (M + 1)).
    """
    _check_length(length)
    count = min(check_budget(budget), length)
    return tuple(-(-i * (length + 1) // (count + 1)) for i in range(1, count + 1))


def block(length: int, block_tokens: int) -> tuple[int, ...]:
    """Every multiple of the block size up to N: what block caches do."""
    _check_length(length)
    if block_tokens < 1:
        raise ValueError(f"block size {block_tokens} is below 1: give a number of tokens >= 1")
    return tuple(range(block_tokens, length + 1, block_tokens))


def sqrt_spaced(length: int) -> tuple[int, ...]:
    """Blocks of ceil(sqrt(N)) tokens: about sqrt(N) checkpoints, worst replay about sqrt(N)."""
    _check_length(length)
    return block(length, isqrt(length - 1) + 1)


def logarithmic(length: int, budget: int) -> tuple[int, ...]:
    """About N^(i/M) for i = 1..M: geometric gaps, dense near the root, the last one at N.

    Where rounding would make two coincide the later one moves one token deeper, so there are
    always min(M, N) distinct positions.
    """
    _check_length(length)
    count = min(check_budget(budget), length)
    result: list[int] = []
    for i in range(1, count + 1):
        wanted = round(length ** (i / count))
        earliest = result[-1] + 1 if result else 1
        latest = length - (count - i)
        result.append(min(max(wanted, earliest), latest))
    return tuple(result)


def random_spaced(length: int, budget: int, seed: int) -> tuple[int, ...]:
    """min(M, N) distinct uniform positions."""
    _check_length(length)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(length, size=min(check_budget(budget), length), replace=False)
    return tuple(sorted((drawn + 1).tolist()))


def greedy(weights: OverlapWeights, budget: int) -> tuple[int, ...]:
    """Add the checkpoint that saves most, M times. O(n M).

    Adding c between neighbours l and r saves (c - l) * weight in [c, r). Ties take the shallowest.
    """
    depths, mass = weights.depths, np.cumsum(weights.weights)
    before = mass - weights.weights
    chosen: list[int] = []
    for _ in range(min(check_budget(budget), depths.size)):
        edges = sorted({0, *chosen})
        gain = np.zeros(depths.size)
        for left, right in pairwise([*edges, weights.length + 1]):
            lo, hi = np.searchsorted(depths, [left, right])
            if hi > lo:
                gain[lo:hi] = (depths[lo:hi] - left) * (mass[hi - 1] - before[lo:hi])
        chosen.append(int(depths[int(gain.argmax())]))
    return tuple(sorted(chosen))


def _check_length(length: int) -> None:
    if length != int(length) or length < 1:
        raise ValueError(f"N = {length} is not a whole number >= 1: give the entry's token count")
