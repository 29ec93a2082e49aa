"""Support compression: the nodes that an optimal plan can use."""

from __future__ import annotations

from dataclasses import dataclass

from spc_sglang.planning.tree import PrefixTree


@dataclass(frozen=True)
class CompressedTree:
    """A smaller tree with the same optimum; `nodes[i]` is the original id of its node i."""

    tree: PrefixTree
    nodes: tuple[int, ...]

    def original(self, checkpoints: tuple[int, ...]) -> tuple[int, ...]:
        """Node ids of the original tree."""
        return tuple(self.nodes[node] for node in checkpoints)


def compress(tree: PrefixTree, keep: frozenset[int] = frozenset()) -> CompressedTree:
    """Only the root, nodes with weight, nodes that branch towards weight, and `keep`. O(n).

    A node without weight and with one useful child can hand its checkpoint to that child: every
    request it serves lies below, so moving down saves tokens and loses none.
    """
    useful_children = [0] * tree.size
    useful = [False] * tree.size
    for node in range(tree.size - 1, -1, -1):
        useful[node] = tree.weights[node] > 0 or useful_children[node] > 0 or node in keep
        if node and useful[node]:
            useful_children[tree.parents[node]] += 1

    nodes: list[int] = []
    parents: list[int] = []
    nearest_kept = [0] * tree.size
    for node in range(tree.size):
        kept = node == 0 or node in keep or tree.weights[node] > 0 or useful_children[node] > 1
        if kept:
            parents.append(nearest_kept[tree.parents[node]] if node else -1)
            nearest_kept[node] = len(nodes)
            nodes.append(node)
        else:
            nearest_kept[node] = nearest_kept[tree.parents[node]]
    smaller = PrefixTree(parents, [tree.depths[v] for v in nodes], [tree.weights[v] for v in nodes])
    return CompressedTree(smaller, tuple(nodes))
