"""`plan_tree`: which nodes of a prefix tree hold checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from spc_sglang.placement.weights import check_budget
from spc_sglang.planning.allocation import allocate
from spc_sglang.planning.compression import compress
from spc_sglang.planning.solve_exact import solve_exact
from spc_sglang.planning.solve_greedy import solve_greedy
from spc_sglang.planning.solve_price import solve_price
from spc_sglang.planning.split import BranchSplit, split_branches
from spc_sglang.planning.tree import PrefixTree, tree_replay

METHODS = ("auto", "exact", "price", "greedy")
# table cells (n * height * budgets) up to which "auto" lets the exact DP close a gap, some 0.1 s
_EXACT_CELLS = 100_000


@dataclass(frozen=True)
class TreePlan:
    """Checkpointed nodes, and how far from optimal they can be."""

    checkpoints: tuple[int, ...]
    """Node ids, increasing, at most the budget."""
    replay: float
    """Weighted total of replay tokens."""
    lower_bound: float
    """No plan of this budget replays less, up to rounding; `replay` itself if proven optimal."""
    method: str
    """What ran: "split", "exact", "price" or "greedy"."""

    @property
    def is_optimal(self) -> bool:
        """Whether the bound proves the plan optimal (False can also mean: not proven)."""
        return self.lower_bound >= self.replay


def plan_tree(tree: PrefixTree, budget: int, *, method: str = "auto") -> TreePlan:
    """At most `budget` checkpointed nodes with (nearly) the least weighted replay.

    "exact": the tree DP, O(height * n * M); "price": near-optimal with a certified lower bound,
    O(n log^2 n) a price; "greedy": adds the best checkpoint `budget` times. "auto" splits the tree
    into single prefixes when that is exact (then it is optimal), else runs "price", and the exact
    DP only where "price" leaves a gap on a small tree. Nodes with neither weight nor branches are
    never checkpointed.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: use one of {list(METHODS)}")
    count = check_budget(budget)
    small = compress(tree)
    if method == "auto":
        split = split_branches(small.tree)
        if split.exact and split.entries:
            return _finish(tree, small.original(_plan_split(split, count)), None, "split")
        priced = plan_tree(tree, count, method="price")
        if priced.is_optimal or _exact_cells(small.tree, count) > _EXACT_CELLS:
            return priced
        method = "exact"
    if method == "exact":
        return _finish(tree, small.original(solve_exact(small.tree, count)), None, method)
    if method == "price":
        nodes, bound = solve_price(small.tree, count)
        return _finish(tree, small.original(nodes), bound, method)
    nodes, more = solve_greedy(small.tree, count)
    return _finish(tree, small.original(nodes), tree_replay(small.tree, nodes) - more, method)


def _plan_split(split: BranchSplit, budget: int) -> tuple[int, ...]:
    """Jointly optimal checkpoints of a tree that falls apart into single prefixes."""
    joint = allocate([entry.weights for entry in split.entries], budget)
    return tuple(
        sorted(
            entry.node_at(depth)
            for entry, placement in zip(split.entries, joint.placements, strict=True)
            for depth in placement.depths
        )
    )


def _finish(
    tree: PrefixTree, nodes: tuple[int, ...], lower_bound: float | None, method: str
) -> TreePlan:
    replay = tree_replay(tree, nodes)
    bound = replay if lower_bound is None else min(replay, max(0.0, lower_bound))
    return TreePlan(nodes, replay, bound, method)


def _exact_cells(tree: PrefixTree, budget: int) -> int:
    levels = [0] * tree.size
    for node in range(1, tree.size):
        levels[node] = levels[tree.parents[node]] + 1
    return sum(levels) * (min(budget, tree.size) + 1)
