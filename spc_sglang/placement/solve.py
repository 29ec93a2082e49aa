"""`place`: where M checkpoints go on one prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spc_sglang.placement.cost import Cost
from spc_sglang.placement.evaluate import replay
from spc_sglang.placement.grid import Grid, as_grid
from spc_sglang.placement.layered import layered_curve, place_layered
from spc_sglang.placement.price import place_priced
from spc_sglang.placement.reduction import Reduced, reduce
from spc_sglang.placement.weights import FloatArray, IntArray, OverlapWeights, check_budget

METHODS: dict[str, Callable[[Reduced, int], IntArray]] = {
    "auto": place_priced,
    "price": place_priced,
    "hull": place_layered,
}


@dataclass(frozen=True)
class Placement:
    """Checkpoints of one prefix and what they cost under the weights they were chosen for."""

    depths: tuple[int, ...]
    """Checkpoint depths in tokens, increasing, at most M of them."""
    replay: float
    """Weighted total of replay tokens (or of `cost`)."""
    mean_replay: float
    """`replay` per request."""


def place(
    weights: OverlapWeights,
    budget: int,
    *,
    grid: int | Sequence[int] | Grid = 1,
    cost: Cost | None = None,
    method: str = "auto",
) -> Placement:
    """At most `budget` checkpoint depths with the least weighted replay (paper: the exact DP).

    `grid` restricts depths to multiples of a step, to a sequence of allowed depths, or to a
    `Grid`. `method` "price" (also "auto") needs O(n) memory and a few O(n) sweeps over the n
    observed depths; "hull" is the layered O(n M) reference. Both return an optimum, with only
    depths where weight was observed (floored to the grid), so fewer than `budget` when there are
    fewer such depths. Equal optima are settled by the sweep, which keeps the shallower candidate
    and the smaller count: the result depends on the input alone, not on the machine or on Numba.

    Raises ValueError for a bad budget, grid, cost or method.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: use one of {sorted(METHODS)}")
    problem = reduce(weights, as_grid(grid, weights.length), cost or Cost.tokens())
    chosen = METHODS[method](problem, check_budget(budget))
    return as_placement(weights, problem, chosen, cost)


def value_curve(
    weights: OverlapWeights,
    budget: int,
    *,
    grid: int | Sequence[int] | Grid = 1,
    cost: Cost | None = None,
) -> FloatArray:
    """V(0), ..., V(M): least weighted replay for each budget, `[M + 1]`. Convex, O(n M)."""
    problem = reduce(weights, as_grid(grid, weights.length), cost or Cost.tokens())
    return layered_curve(problem, check_budget(budget))


def marginal_prices(curve: FloatArray) -> FloatArray:
    """V(m - 1) - V(m) for m = 1..M, `[M]`: what the m-th checkpoint is worth, never rising."""
    return -np.diff(curve)


def as_placement(
    weights: OverlapWeights, problem: Reduced, chosen: IntArray, cost: Cost | None
) -> Placement:
    """Candidates back to depths, with their replay computed from the original weights."""
    depths = tuple(problem.depths[chosen].tolist())
    total = replay(weights, depths, cost=cost)
    return Placement(depths, total, total / weights.total)
