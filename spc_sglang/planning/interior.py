"""M checkpoints between two given ones, exactly, for the few hundred depths of one request.

With checkpoints c_1 < ... < c_M above an anchor c_0 the tokens saved are

    sum_k (c_k - c_{k-1}) * S(c_k),   S(c) = weight of overlaps at c or deeper,

which is the placement problem of `spc_sglang.placement` written as savings. For M <= 4 and a few
hundred depths one vectorised pass over all pairs beats the general solver and needs no compiler,
and for a handful of depths, as in most requests, plain loops beat that; a test compares all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

Segment = tuple[int, Sequence[int], Sequence[float]]
"""Anchor depth, overlap depths (increasing, all above the anchor) and their weights."""

FEW_DEPTHS = 24


def savings_curve(
    segment: Segment, budget: int, price: float = 0.0
) -> list[tuple[float, tuple[int, ...]]]:
    """Best saving and its depths for at most 0, 1, ..., `budget` checkpoints. O(n^2 budget).

    Ends at the first checkpoint that saves no more than `price`: the next one saves no more than
    that one (theorem 4 in `placement/README.md`). Ties take the shallower depth.
    """
    anchor, depths, weights = segment
    curve: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    if len(depths) == 0:
        return curve * (budget + 1)
    one_more = _one_more_of_few if len(depths) <= FEW_DEPTHS else _one_more
    height = [float(depth - anchor) for depth in depths]
    deeper = list(accumulate(weights[::-1]))[::-1]
    best = [own * weight for own, weight in zip(height, deeper, strict=True)]
    previous: list[list[int]] = []
    for count in range(1, budget + 1):
        if count > 1:
            best, choice = one_more(best, height, deeper)
            previous.append(choice)
        saving = max(best)
        if saving <= curve[-1][0] + price:
            break
        curve.append((float(saving), _walk_back(depths, previous, best.index(saving))))
    return curve + [curve[-1]] * (budget + 1 - len(curve))


def place_between(segments: list[Segment], budget: int, price: float = 0.0) -> tuple[int, ...]:
    """At most `budget` depths over independent segments that save most, increasing.

    Every one of them saves more than `price` (weight times tokens). The end of one segment is the
    anchor of the next, and holds a checkpoint of its own.
    """
    if budget < 0:
        raise ValueError(f"budget must be at least 0, got {budget}")
    curves = [savings_curve(segment, budget, price) for segment in segments]
    worth = [curve for curve in curves if curve[-1][1]]
    if len(worth) <= 1:  # every position of a curve is worth its price
        return worth[0][-1][1] if worth else ()
    totals: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (budget + 1)
    for curve in worth:
        totals = [
            max(
                (
                    (totals[m - k][0] + curve[k][0], totals[m - k][1] + curve[k][1])
                    for k in range(m + 1)
                ),
                key=lambda option: option[0],
            )
            for m in range(budget + 1)
        ]
    _, chosen = max(totals, key=lambda option: option[0] - price * len(option[1]))
    return tuple(sorted(chosen))


Step = tuple[list[float], list[int]]
"""By the deepest checkpoint: the best saving with one more, and where the one above it lies."""


def _one_more_of_few(best: list[float], height: list[float], deeper: list[float]) -> Step:
    savings, choice = [-np.inf], [0]
    for last in range(1, len(best)):
        own, weight = height[last], deeper[last]
        options = [(own - height[above]) * weight + best[above] for above in range(last)]
        saving = max(options)
        savings.append(saving)
        choice.append(options.index(saving))
    return savings, choice


def _one_more(best: list[float], height: list[float], deeper: list[float]) -> Step:
    heights, index = np.array(height), np.arange(len(best))
    step = np.subtract.outer(heights, heights) * np.array(deeper)[:, None] + np.array(best)
    step[index[:, None] <= index[None, :]] = -np.inf
    choice = step.argmax(axis=1)
    return step[index, choice].tolist(), choice.tolist()


def _walk_back(depths: Sequence[int], previous: list[list[int]], last: int) -> tuple[int, ...]:
    chosen = [last]
    for choice in reversed(previous):
        chosen.append(choice[chosen[-1]])
    return tuple(int(depths[index]) for index in reversed(chosen))
