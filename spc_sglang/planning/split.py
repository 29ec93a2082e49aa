"""Stars, combs and when a tree falls apart into independent single-prefix problems.

The anchor of a request depends on its whole root path, so branches share a decision as long as
they share tokens. The tree splits exactly when every branching node has a known anchor below it:

* "path": nothing branches;
* "disjoint": only the root branches, the branches share no tokens;
* "checkpointed": every other branching node already holds a checkpoint that stays;
* "lumped": a comb whose teeth can hold no checkpoints. A tooth's request resumes from the spine,
  its own part of the tooth is a constant, and its weight counts at the attachment.

Otherwise ("joint") it does not: checkpointing every branching node first, say, is optimal in only
about a quarter of random trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spc_sglang.placement.weights import OverlapWeights
from spc_sglang.planning.compression import compress
from spc_sglang.planning.tree import PrefixTree


@dataclass(frozen=True)
class BranchEntry:
    """One single-prefix problem cut out of a tree; its depths count from `origin_depth`."""

    origin_depth: int
    """Depth of the root or fixed checkpoint that it starts below."""
    weights: OverlapWeights
    """Weight by depth below the origin."""
    nodes: tuple[int, ...]
    """Node ids of `weights.depths`, in the same order."""

    def node_at(self, depth: int) -> int:
        """The node `depth` tokens below the origin."""
        return self.nodes[int(np.searchsorted(self.weights.depths, depth))]


@dataclass(frozen=True)
class BranchSplit:
    """What `split_branches` found."""

    shape: str
    """Of the tree without useless nodes: "path", "star" (one branching node), "comb" (all
    branching nodes on one root path) or "tree"."""
    exact: bool
    """Whether solving `entries` on one joint budget solves the tree."""
    case: str
    """"path", "disjoint", "checkpointed", "lumped" or "joint"."""
    reason: str
    """One sentence: why the case holds, or which node stands in the way."""
    entries: tuple[BranchEntry, ...]
    """Empty when not exact, or when no weight is left to serve."""
    constant: float
    """Replay that no choice inside the entries changes (the teeth of a lumped comb)."""


def split_branches(
    tree: PrefixTree, *, checkpointed: Iterable[int] = (), spine: Iterable[int] | None = None
) -> BranchSplit:
    """Split `tree` into single-prefix problems, exactly when the theory allows it. O(n).

    `checkpointed` nodes hold checkpoints that stay and count as served from themselves. `spine`,
    when given, is a set of nodes on one root path: only they may hold checkpoints (no teeth).
    Raises ValueError for nodes that do not exist or a spine that is not on one path.
    """
    fixed = tree.check_checkpoints(checkpointed)
    if spine is not None:
        if fixed:
            raise ValueError(
                f"both checkpointed nodes {sorted(fixed)} and a spine: give one of the two"
            )
        return _lump(tree, tree.check_checkpoints(spine))
    small = compress(tree, keep=fixed)
    kept_fixed = frozenset(i for i, node in enumerate(small.nodes) if node in fixed)
    branching = _branching(small.tree)
    shape = tree_shape(small.tree)
    free = [node for node in branching if node and node not in kept_fixed]
    if free:
        node = small.nodes[free[0]]
        reason = (
            f"node {node} at depth {tree.depths[node]} branches without a checkpoint: whether it "
            "should hold one depends on all its branches together, use plan_tree"
        )
        return BranchSplit(shape, False, "joint", reason, (), 0.0)
    case, reason = _exact_case(branching, bool(fixed))
    entries = _cut(small.tree, kept_fixed)
    named = tuple(BranchEntry(e.origin_depth, e.weights, small.original(e.nodes)) for e in entries)
    return BranchSplit(shape, True, case, reason, named, 0.0)


def tree_shape(tree: PrefixTree) -> str:
    """ "path", "star", "comb" or "tree", by where the branching nodes lie."""
    branching = _branching(tree)
    if not branching:
        return "path"
    if len(branching) == 1:
        return "star"
    # on one root path iff each branching node has the previous one above it
    above = set(_root_path(tree, branching[-1]))
    return "comb" if above.issuperset(branching) else "tree"


def _exact_case(branching: list[int], has_fixed: bool) -> tuple[str, str]:
    if not branching:
        return "path", "nothing branches: the tree is one prefix"
    if branching == [0]:
        return "disjoint", "only the root branches: the branches share no tokens"
    assert has_fixed, "a branching node below the root is only free of choice with a checkpoint"
    return "checkpointed", "every branching node below the root holds a checkpoint"


def _cut(tree: PrefixTree, fixed: frozenset[int]) -> tuple[BranchEntry, ...]:
    """Chains of free nodes below the root or a fixed checkpoint; each node extends its parent's."""
    chain_of: dict[int, list[int]] = {}
    origins: list[tuple[int, list[int]]] = []
    for node in range(1, tree.size):
        if node in fixed:
            continue
        parent = tree.parents[node]
        if parent == 0 or parent in fixed:
            chain: list[int] = []
            origins.append((parent, chain))
        else:
            chain = chain_of[parent]
        chain.append(node)
        chain_of[node] = chain
    return tuple(
        entry
        for origin, chain in origins
        if (entry := _entry(tree, origin, {node: tree.weights[node] for node in chain}))
    )


def _lump(tree: PrefixTree, spine: frozenset[int]) -> BranchSplit:
    """The comb without checkpoints on its teeth: weight counts where its path leaves the spine."""
    deepest = max(spine, key=lambda node: tree.depths[node], default=0)
    path = set(_root_path(tree, deepest))
    off = sorted(spine - path)
    if off:
        raise ValueError(
            f"spine node {off[0]} is not above spine node {deepest}: give nodes of one root path"
        )
    attachment = [0] * tree.size
    weight = dict.fromkeys(sorted(spine, key=lambda node: tree.depths[node]), 0.0)
    constant = 0.0
    for node in range(1, tree.size):
        at = node if node in spine else attachment[tree.parents[node]]
        attachment[node] = at
        constant += tree.weights[node] * (tree.depths[node] - tree.depths[at])
        if at:
            weight[at] += tree.weights[node]
    entry = _entry(tree, 0, weight)
    return BranchSplit(
        tree_shape(compress(tree).tree),
        True,
        "lumped",
        "only the spine holds checkpoints: each tooth's weight counts at its attachment",
        (entry,) if entry else (),
        constant,
    )


def _entry(tree: PrefixTree, origin: int, weight: dict[int, float]) -> BranchEntry | None:
    """The nodes with weight as a single-prefix problem, or None without any."""
    nodes = tuple(node for node, value in weight.items() if value > 0)
    if not nodes:
        return None
    start = tree.depths[origin]
    depths = [tree.depths[node] - start for node in nodes]
    return BranchEntry(start, OverlapWeights(depths, [weight[node] for node in nodes]), nodes)


def _branching(tree: PrefixTree) -> list[int]:
    children = [0] * tree.size
    for parent in tree.parents[1:]:
        children[parent] += 1
    return [node for node in range(tree.size) if children[node] > 1]


def _root_path(tree: PrefixTree, node: int) -> list[int]:
    path = [node]
    while node:
        node = tree.parents[node]
        path.append(node)
    return path
