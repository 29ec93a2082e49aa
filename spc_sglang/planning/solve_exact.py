"""The exact tree DP: the reference for every other tree solver.

f_v[a][m] = least replay of v's subtree with at most m checkpoints in it, when the nearest
checkpoint above v is the ancestor a (a = 0 is the root, free):

    f_v[a][m] = min( p_v (d_v - d_a) + g_v[a][m],        v holds no checkpoint
                     g_v[v][m - 1] )                     v holds one and serves itself
    g_v[a][m] = min over m_1 + ... + m_k <= m of  sum_c f_c[a][m_c],   c the children of v

The answer is g_root[root][M]. Tables have one row per ancestor, so O(height * n * M^2) work in the
worst case, O(height * n * M) when budgets are capped by subtree sizes, as here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spc_sglang.placement.weights import FloatArray, IntArray
from spc_sglang.planning.tree import PrefixTree


def solve_exact(tree: PrefixTree, budget: int) -> tuple[int, ...]:
    """Node ids of an optimal plan, increasing. Ties keep the smaller count."""
    tables = _Tables(tree, budget)
    tables.fill()
    return tables.walk_back()


class _Tables:
    def __init__(self, tree: PrefixTree, budget: int) -> None:
        self._tree = tree
        self._budget = budget
        self._children = tree.children()
        # ancestors[v]: depths of root, ..., parent of v
        self._ancestor_depths: list[FloatArray] = [np.zeros(0)] * tree.size
        for node in range(1, tree.size):
            parent = tree.parents[node]
            above = self._ancestor_depths[parent]
            self._ancestor_depths[node] = np.append(above, tree.depths[parent])
        self._below: list[FloatArray] = [np.zeros((0, 0))] * tree.size
        self._takes: list[NDArray[np.bool_]] = [np.zeros((0, 0), dtype=bool)] * tree.size
        self._splits: list[list[IntArray]] = [[] for _ in range(tree.size)]

    def fill(self) -> None:
        """g and f of every node, children first."""
        f: list[FloatArray] = [np.zeros((0, 0))] * self._tree.size
        for node in range(self._tree.size - 1, -1, -1):
            anchors = self._ancestor_depths[node].size
            g = np.zeros((anchors + 1, 1))
            for child in self._children[node]:
                g, split = _min_plus(g, f[child], self._budget)
                self._splits[node].append(split)
                f[child] = np.zeros((0, 0))
            self._below[node] = g
            if node:
                f[node] = self._choose(node, g)

    def _choose(self, node: int, g: FloatArray) -> FloatArray:
        """f_v from g_v; `takes` records where v's own checkpoint strictly helps."""
        gaps = self._tree.depths[node] - self._ancestor_depths[node]
        width = min(g.shape[1] + 1, self._budget + 1)
        skip = np.pad(g[:-1], ((0, 0), (0, 1)), mode="edge")[:, :width]
        skip = skip + self._tree.weights[node] * gaps[:, None]
        take = np.full((gaps.size, width), np.inf)
        take[:, 1:] = g[-1][: width - 1]
        self._takes[node] = take < skip
        return np.minimum(take, skip)

    def walk_back(self) -> tuple[int, ...]:
        """Follow the recorded choices from the root with the whole budget."""
        chosen: list[int] = []
        # (node, row of its anchor, budget of its subtree below itself)
        todo = [(0, 0, min(self._budget, self._below[0].shape[1] - 1))]
        while todo:
            node, anchor, left = todo.pop()
            shares = self._shares(node, anchor, left)
            for child, share in zip(self._children[node], shares, strict=True):
                own_row = self._ancestor_depths[child].size
                if self._takes[child][anchor, share]:
                    chosen.append(child)
                    todo.append((child, own_row, share - 1))
                else:
                    limit = self._below[child].shape[1] - 1
                    todo.append((child, anchor, min(share, limit)))
        return tuple(sorted(chosen))

    def _shares(self, node: int, anchor: int, left: int) -> list[int]:
        """Budget of each child's subtree, undoing the min-plus merges last to first."""
        shares: list[int] = []
        for split in reversed(self._splits[node]):
            left = min(left, split.shape[1] - 1)
            share = int(split[anchor, left])
            shares.append(share)
            left -= share
        return shares[::-1]


def _min_plus(g: FloatArray, f: FloatArray, budget: int) -> tuple[FloatArray, IntArray]:
    """h[a][m] = min_k g[a][m - k] + f[a][k] and the smallest such k, m up to `budget`."""
    rows, left = g.shape
    right = f.shape[1]
    width = min(left + right - 1, budget + 1)
    h = np.full((rows, width), np.inf)
    split = np.zeros((rows, width), dtype=np.int64)
    for k in range(min(right, width)):
        span = min(left, width - k)
        candidate = g[:, :span] + f[:, k : k + 1]
        target = h[:, k : k + span]
        better = candidate < target
        np.copyto(target, candidate, where=better)
        np.copyto(split[:, k : k + span], k, where=better)
    return h, split
