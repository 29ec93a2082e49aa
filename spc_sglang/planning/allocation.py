"""One budget over many independent prefixes, by one price per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spc_sglang.placement.cost import Cost
from spc_sglang.placement.grid import Grid, as_grid
from spc_sglang.placement.price import Edge, Vertex, ends, penalised_solver, search, splice
from spc_sglang.placement.reduction import Reduced, reduce
from spc_sglang.placement.solve import Placement, as_placement
from spc_sglang.placement.weights import IntArray, OverlapWeights, check_budget


@dataclass(frozen=True)
class Allocation:
    """A joint optimum over independent entries."""

    placements: tuple[Placement, ...]
    """One per entry, in the order given."""
    replay: float
    """Weighted total over all entries."""
    price: float
    """The common price per slot: one more saves at most this, one fewer costs at least this. 0
    when every entry has all it can use."""

    @property
    def budgets(self) -> tuple[int, ...]:
        """Slots that each entry got."""
        return tuple(len(placement.depths) for placement in self.placements)


def allocate(
    list_of_weights: Sequence[OverlapWeights],
    total_budget: int,
    *,
    grid: int | Sequence[int] | Grid = 1,
    cost: Cost | None = None,
) -> Allocation:
    """The best `total_budget` checkpoints over all entries together.

    Each entry's V is convex, so one price for all is jointly optimal (and equals greedy by
    marginal price). Weights carry the entries' request rates. All states of a model have equal
    bytes, so a price per slot is a price per byte. O(total n) a price, O(total n) memory.
    """
    if not list_of_weights:
        raise ValueError("no entries (got 0): give at least one OverlapWeights")
    budget = check_budget(total_budget)
    model = cost or Cost.tokens()
    problems = [reduce(entry, as_grid(grid, entry.length), model) for entry in list_of_weights]
    edge = _search_jointly(problems, budget)
    chosen = _spend(edge, problems, budget)
    placements = tuple(
        as_placement(entry, problem, candidates, cost)
        for entry, problem, candidates in zip(list_of_weights, problems, chosen, strict=True)
    )
    return Allocation(placements, sum(p.replay for p in placements), edge.price)


def _search_jointly(problems: list[Reduced], budget: int) -> Edge[list[IntArray]]:
    solvers = [penalised_solver(problem) for problem in problems]
    lows, highs = zip(*map(ends, problems), strict=True)
    low, high = _together(list(lows)), _together(list(highs))
    return search(
        lambda price: _together([solve(price) for solve in solvers]),
        budget,
        low,
        high,
    )


def _together(vertices: Sequence[Vertex[IntArray]]) -> Vertex[list[IntArray]]:
    """Optima of one price side by side are the joint optimum of that price."""
    return Vertex(
        sum(vertex.count for vertex in vertices),
        sum(vertex.cost for vertex in vertices),
        [vertex.solution for vertex in vertices],
    )


def _spend(edge: Edge[list[IntArray]], problems: list[Reduced], budget: int) -> list[IntArray]:
    """Move entries from the edge's low end to its high end, in order, until the budget is spent.

    Both ends are optimal at one price in every entry, so each step saves the same per slot; the
    entry where the budget runs out is spliced.
    """
    chosen = list(edge.low.solution)
    left = budget - edge.low.count
    for i, (low, high) in enumerate(zip(edge.low.solution, edge.high.solution, strict=True)):
        if left <= 0:
            break
        if high.size - low.size <= left:
            chosen[i] = high
        elif high.size > low.size:
            chosen[i] = splice(low, high, low.size + left, problems[i].size + 1)
        left -= chosen[i].size - low.size
    return chosen


def split_equally(total_budget: int, entries: int) -> tuple[int, ...]:
    """The naive split, for comparison: shares that differ by at most one, larger ones first."""
    if entries < 1:
        raise ValueError(f"{entries} entries: give at least one")
    edges = np.ceil(np.linspace(0, check_budget(total_budget), entries + 1)).astype(int)
    return tuple(int(b - a) for a, b in pairwise(edges))
