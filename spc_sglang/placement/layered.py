"""The reference: the layered DP over (budget, depth), O(n M) time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spc_sglang.placement.reduction import Reduced
from spc_sglang.placement.sweep import sweep
from spc_sglang.placement.weights import FloatArray, IntArray


def layered_rows(
    x: Sequence[Any], P: Sequence[Any], T: Sequence[Any], base: Sequence[Any], budget: int
) -> tuple[list[list[Any]], list[list[int]]]:
    """dp[0..M] and the choices of dp[1..M], each of length n + 1.

    dp[m][j] is the least cost of the first j candidates with at most m checkpoints:
    dp[0][j] = T_j, dp[m][0] = 0, and row m reads row m - 1 (see `sweep`). Whole numbers stay
    exact.
    """
    n = len(x) - 1
    hull: list[int] = [0] * (n + 1)
    b: list[Any] = [0] * (n + 1)
    rows: list[list[Any]] = [list(T)]
    choices: list[list[int]] = []
    for _ in range(budget):
        row: list[Any] = [0] * (n + 1)
        choice = [0] * (n + 1)
        sweep(x, P, T, base, rows[-1], 0, row, choice, hull, b)
        rows.append(row)
        choices.append(choice)
    return rows, choices


def layered_choice(choices: list[list[int]], n: int) -> list[int]:
    """Walk dp[M][n] back: s = choice[m][j] leads to dp[m - 1][s - 1]."""
    chosen: list[int] = []
    j = n
    for choice in reversed(choices):
        s = choice[j]
        if s == 0:
            break
        chosen.append(s)
        j = s - 1
    return chosen[::-1]


def place_layered(problem: Reduced, budget: int) -> IntArray:
    """An optimal set of at most `budget` candidates, by the layered DP."""
    count = min(budget, problem.size)
    _, choices = layered_rows(*_lists(problem), count)
    return np.asarray(layered_choice(choices, problem.size), dtype=np.int64)


def layered_curve(problem: Reduced, budget: int) -> FloatArray:
    """V(0..M) including the floor, `[M + 1]`; flat beyond n checkpoints."""
    rows, _ = layered_rows(*_lists(problem), min(budget, problem.size))
    values = np.asarray([row[-1] for row in rows], dtype=np.float64)
    return np.pad(values, (0, budget + 1 - values.size), mode="edge") + problem.floor


def _lists(problem: Reduced) -> tuple[list[float], list[float], list[float], list[float]]:
    return problem.x.tolist(), problem.P.tolist(), problem.T.tolist(), problem.base.tolist()
