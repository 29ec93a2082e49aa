"""Random trees, and enumeration as the naive twin of the tree solvers."""

from __future__ import annotations

import random
from itertools import combinations

from spc_sglang.planning import PrefixTree, tree_replay


def random_tree(
    rng: random.Random, size: int, *, reach: int = 0, step: int = 5, fractions: bool = False
) -> PrefixTree:
    """Parents at most `reach` numbers back (0: anywhere), so small reach gives long chains."""
    parents, depths = [-1], [0]
    for node in range(1, size):
        parent = rng.randint(max(0, node - reach) if reach else 0, node - 1)
        parents.append(parent)
        depths.append(depths[parent] + rng.randint(1, step))
    weights = [rng.choice((0, 0, 1, 2, 5)) * (rng.random() if fractions else 1) for _ in parents]
    return PrefixTree(parents, depths, weights)


def enumerated_curve(
    tree: PrefixTree, *, allowed: set[int] | None = None, fixed: frozenset[int] = frozenset()
) -> list[float]:
    """V(0..n - 1): the least replay over all sets of at most m nodes besides `fixed`."""
    nodes = sorted((set(range(1, tree.size)) if allowed is None else allowed) - fixed)
    curve: list[float] = []
    best = float("inf")
    for count in range(len(nodes) + 1):
        for chosen in combinations(nodes, count):
            best = min(best, tree_replay(tree, fixed | set(chosen)))
        curve.append(best)
    return curve
