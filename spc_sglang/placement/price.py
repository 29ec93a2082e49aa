"""One price per checkpoint instead of a budget: the search for the price, and the splice.

V(m), the least cost with m checkpoints, is convex on one prefix (the segment cost is Monge), so
every m on its lower hull minimises V(m) + price * m for some price. `search` keeps two hull
vertices around the budget and asks for the price of the chord between them: either a vertex below
the chord comes back and the bracket shrinks, or the chord is an edge of the hull and everything
between its ends costs exactly what the chord says. No tie-breaking of prices is needed, so floats
and whole numbers are treated alike, and the bracket shrinks in whole numbers, so it always ends.
The chord price halves the bracket about geometrically: some 10 sweeps for n = 2,048 and M = 64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from spc_sglang.placement.engine import Sweeper
from spc_sglang.placement.reduction import Reduced
from spc_sglang.placement.weights import IntArray

S = TypeVar("S")


@dataclass(frozen=True)
class Vertex(Generic[S]):
    """A solution optimal for some price: `count` checkpoints, `cost` without the price."""

    count: int
    cost: float
    solution: S


@dataclass(frozen=True)
class Edge(Generic[S]):
    """Where a budget lies on the lower hull: low.count <= budget <= high.count.

    Both ends minimise cost + price * count. They are the same vertex when one has the budget.
    """

    low: Vertex[S]
    high: Vertex[S]
    price: float

    def value_at(self, budget: int) -> float:
        """The hull at `budget`: V there if V is convex, else a lower bound on it."""
        return self.low.cost - self.price * (budget - self.low.count)


def search(
    solve: Callable[[float], Vertex[S]], budget: int, low: Vertex[S], high: Vertex[S]
) -> Edge[S]:
    """The hull vertex with `budget` checkpoints, else the edge that spans it.

    `solve(price)` minimises cost + price * count exactly; `low` and `high` are optimal for some
    price each, with low.count <= budget (no checkpoints and all of them will do). From
    high.count on the budget cannot help: `high` at price 0.
    """
    while low.count <= budget < high.count:
        chord = max(0.0, (low.cost - high.cost) / (high.count - low.count))
        found = solve(chord)
        if found.count == budget:
            return Edge(found, found, chord)
        if not low.count < found.count < high.count:
            return Edge(low, high, chord)
        if found.count < budget:
            low = found
        else:
            high = found
    return Edge(high, high, 0.0)


def ends(problem: Reduced) -> tuple[Vertex[IntArray], Vertex[IntArray]]:
    """The two vertices that need no search: nothing checkpointed, and everything."""
    nothing = np.zeros(0, dtype=np.int64)
    everything = np.arange(1, problem.size + 1)
    return (
        Vertex(0, float(problem.T[-1]), nothing),
        Vertex(problem.size, 0.0, everything),
    )


def penalised_solver(problem: Reduced) -> Callable[[float], Vertex[IntArray]]:
    """price -> an optimum of cost + price * |C| on one prefix. O(n) a call."""
    sweeper = Sweeper(problem)

    def solve(price: float) -> Vertex[IntArray]:
        chosen = sweeper.penalised(price)
        return Vertex(chosen.size, problem.cost_of(chosen), chosen)

    return solve


def splice(low: IntArray, high: IntArray, budget: int, end: int) -> IntArray:
    """Optimum with exactly `budget` checkpoints from two optima of one price, |low| < M < |high|.

    With a_0 = b_0 = 0 and a, b ending in `end`: take the first k for which
    a_{k+1} >= b_{k+1+d}, d = |high| - M. Then a_k <= b_{k+d}, the segment of `high` lies within the
    segment of `low`, and swapping tails cannot cost more (Monge): a_1..a_k, b_{k+1+d}, ...
    """
    drop = high.size - budget
    a = np.concatenate((low, [end]))
    b = np.concatenate((high, [end]))
    crossing = a >= b[drop : drop + a.size]
    k = int(crossing.argmax())
    return np.concatenate((low[:k], high[k + drop :]))


def place_priced(problem: Reduced, budget: int) -> IntArray:
    """An optimal set of at most `budget` candidates: price search, then splice. O(n) memory."""
    if budget == 0:
        return np.zeros(0, dtype=np.int64)
    edge = search(penalised_solver(problem), budget, *ends(problem))
    if edge.low.count == edge.high.count:
        return edge.low.solution
    return splice(edge.low.solution, edge.high.solution, budget, problem.size + 1)
