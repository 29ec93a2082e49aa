"""The main path on trees: price search, greedy fill, certified lower bound.

V(m) on a tree need not be convex (a trunk and three leaves of one token each give 6, 3, 2, 0), so
one price may jump over a budget. The search then ends on an edge of V's lower hull: the chord at M
is a lower bound on V(M), and the two plans at its ends are filled up, or trimmed down, to M.
"""

from __future__ import annotations

from spc_sglang.placement.price import Vertex, search
from spc_sglang.planning.penalised import PenalisedTree
from spc_sglang.planning.solve_greedy import CheckpointSet
from spc_sglang.planning.tree import PrefixTree, tree_replay

Nodes = tuple[int, ...]


def solve_price(tree: PrefixTree, budget: int) -> tuple[Nodes, float]:
    """Node ids of a plan with at most `budget` checkpoints, and a lower bound on V(budget).

    Some 10-20 penalised solves, O(n log^2 n) each.
    """
    penalised = PenalisedTree(tree)

    def solve(price: float) -> Vertex[Nodes]:
        nodes = penalised.solve(price)
        return Vertex(len(nodes), tree_replay(tree, nodes), nodes)

    nothing = Vertex[Nodes](0, tree_replay(tree, ()), ())
    weighted = tuple(v for v in range(1, tree.size) if tree.weights[v] > 0)
    everything = Vertex(len(weighted), 0.0, weighted)
    edge = search(solve, budget, nothing, everything)
    if edge.low.count in (budget, edge.high.count):
        return edge.low.solution, edge.low.cost
    plans = (_filled(tree, edge.low.solution, budget), _trimmed(tree, edge.high.solution, budget))
    best = min(plans, key=lambda nodes: tree_replay(tree, nodes))
    return best, edge.value_at(budget)


def _filled(tree: PrefixTree, nodes: Nodes, budget: int) -> Nodes:
    state = CheckpointSet(tree, nodes)
    state.fill(budget)
    return tuple(sorted(state.chosen))


def _trimmed(tree: PrefixTree, nodes: Nodes, budget: int) -> Nodes:
    state = CheckpointSet(tree, nodes)
    state.trim(budget)
    return tuple(sorted(state.chosen))
