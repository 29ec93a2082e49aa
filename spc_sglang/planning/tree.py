"""An immutable view of a prefix tree, and what a set of checkpoints costs on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from spc_sglang.placement.weights import as_depths


@dataclass(frozen=True, init=False)
class PrefixTree:
    """Node v ends `depths[v]` tokens below the root; `weights[v]` requests match exactly to it.

    Node 0 is the root (parent -1, depth 0); parents come before their children and depths rise
    along every edge. A request that ends at v resumes from the nearest checkpointed
    ancestor-or-self, else from the root. The root needs no checkpoint and takes none.

    Raises ValueError naming the first node that breaks one of these rules.
    """

    parents: tuple[int, ...]
    depths: tuple[int, ...]
    weights: tuple[float, ...]

    def __init__(
        self, parents: Sequence[int], depths: Sequence[int], weights: Sequence[float]
    ) -> None:
        if not len(parents) == len(depths) == len(weights):
            raise ValueError(
                f"{len(parents)} parents, {len(depths)} depths and {len(weights)} weights: "
                "give each once a node"
            )
        if not len(parents):
            raise ValueError("empty tree: give at least the root (parent -1, depth 0)")
        parent_ids = tuple(as_depths(np.asarray(parents), "parent").tolist())
        tokens = tuple(as_depths(np.asarray(depths), "depth").tolist())
        if parent_ids[0] != -1 or tokens[0] != 0:
            raise ValueError(
                f"node 0 has parent {parent_ids[0]} and depth {tokens[0]}: the root comes first, "
                "with parent -1 and depth 0"
            )
        _check_edges(parent_ids, tokens)
        object.__setattr__(self, "parents", parent_ids)
        object.__setattr__(self, "depths", tokens)
        object.__setattr__(self, "weights", _checked_weights(weights))

    @property
    def size(self) -> int:
        """Number of nodes, the root included."""
        return len(self.parents)

    def children(self) -> list[list[int]]:
        """Children of every node, in node order."""
        result: list[list[int]] = [[] for _ in self.parents]
        for node in range(1, self.size):
            result[self.parents[node]].append(node)
        return result

    def check_checkpoints(self, checkpoints: Iterable[int]) -> frozenset[int]:
        """`checkpoints` as a set, or ValueError naming one that is no node below the root."""
        chosen = frozenset(int(node) for node in checkpoints)
        for node in sorted(chosen):
            if not 0 < node < self.size:
                raise ValueError(
                    f"checkpoint {node} is not a node in 1..{self.size - 1}: the root (0) is free"
                )
        return chosen


def tree_replay(tree: PrefixTree, checkpoints: Iterable[int]) -> float:
    """sum_v p_v (d_v - depth of the nearest checkpointed ancestor-or-self of v). O(n)."""
    chosen = tree.check_checkpoints(checkpoints)
    resume = [0] * tree.size
    total = 0.0
    for node in range(1, tree.size):
        depth = tree.depths[node]
        resume[node] = depth if node in chosen else resume[tree.parents[node]]
        total += tree.weights[node] * (depth - resume[node])
    return total


def _check_edges(parents: tuple[int, ...], depths: tuple[int, ...]) -> None:
    for node in range(1, len(parents)):
        parent = parents[node]
        if not 0 <= parent < node:
            raise ValueError(
                f"node {node} has parent {parent}: number parents before their children"
            )
        if depths[node] <= depths[parent]:
            raise ValueError(
                f"node {node} at depth {depths[node]} is not below its parent {parent} at depth "
                f"{depths[parent]}: depths count tokens from the root"
            )


def _checked_weights(weights: ArrayLike) -> tuple[float, ...]:
    array = np.asarray(weights, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if bad.size:
        raise ValueError(f"weight {array[bad[0]]} of node {bad[0]} is not a finite number >= 0")
    return tuple(array.tolist())
