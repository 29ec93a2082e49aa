"""M checkpoints between two given ones, exactly, for the few hundred depths of one request.

With checkpoints c_1 < ... < c_M above an anchor c_0 the tokens saved are

    sum_k (c_k - c_{k-1}) * S(c_k),   S(c) = weight of overlaps at c or deeper,

which is the placement problem of `spc_sglang.placement` written as savings. For M <= 4 and a few
hundred depths one vectorised pass over all pairs beats the general solver and needs no compiler;
a test compares the two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Segment = tuple[int, IntArray, FloatArray]
"""Anchor depth, overlap depths (increasing, all above the anchor) and their weights."""


def savings_curve(segment: Segment, budget: int) -> list[tuple[float, tuple[int, ...]]]:
    """Best saving and its depths for at most 0, 1, ..., `budget` checkpoints. O(n^2 budget).

    Ties take the shallower depth and the smaller count.
    """
    anchor, depths, weights = segment
    curve: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    if depths.size == 0:
        return curve * (budget + 1)
    height = (depths - anchor).astype(np.float64)
    deeper = np.cumsum(weights[::-1])[::-1]
    best = height * deeper
    previous: list[IntArray] = []
    index = np.arange(height.size)
    shallower_or_same = index[:, None] <= index[None, :]
    for count in range(1, budget + 1):
        if count > 1:
            step = np.subtract.outer(height, height) * deeper[:, None] + best[None, :]
            step[shallower_or_same] = -np.inf
            choice = step.argmax(axis=1)
            previous.append(choice)
            best = step[index, choice]
        last = int(best.argmax())
        saving = float(best[last])
        if saving > curve[-1][0]:
            curve.append((saving, _walk_back(depths, previous, last)))
        else:
            curve.append(curve[-1])
    return curve


def place_between(segments: list[Segment], budget: int, price: float = 0.0) -> tuple[int, ...]:
    """At most `budget` depths over independent segments that save most, increasing.

    Every one of them must save `price` (weight times tokens) or more. The end of one segment is
    the anchor of the next, and holds a checkpoint of its own.
    """
    if budget < 0:
        raise ValueError(f"budget must be at least 0, got {budget}")
    totals: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (budget + 1)
    for segment in segments:
        curve = savings_curve(segment, budget)
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


def _walk_back(depths: IntArray, previous: list[IntArray], last: int) -> tuple[int, ...]:
    chosen = [last]
    for choice in reversed(previous):
        chosen.append(int(choice[chosen[-1]]))
    return tuple(int(depths[index]) for index in reversed(chosen))
