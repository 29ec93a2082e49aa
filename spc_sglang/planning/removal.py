"""What losing one checkpoint costs, on a path and on a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spc_sglang.placement.weights import FloatArray, OverlapWeights, as_depths, check_range
from spc_sglang.planning.tree import PrefixTree


def path_removal_losses(weights: OverlapWeights, depths: Sequence[int]) -> FloatArray:
    """Extra replay if each checkpoint alone goes: (c_i - c_{i-1}) * weight in [c_i, c_{i+1}).

    `[M]`, in the order of the sorted distinct depths. Removing c_i changes the loss of its two
    neighbours only. O((n + M) log n).
    """
    checkpoints = np.unique(as_depths(depths, "checkpoint"))
    check_range(checkpoints, weights.length, "checkpoint")
    mass_before = np.concatenate(([0.0], np.cumsum(weights.weights)))
    edges = np.append(checkpoints, weights.length + 1)
    served = np.diff(mass_before[np.searchsorted(weights.depths, edges)])
    return np.diff(checkpoints, prepend=0) * served


def tree_removal_losses(tree: PrefixTree, checkpoints: Iterable[int]) -> dict[int, float]:
    """Extra replay if each checkpoint alone goes, by node id:

    (d_v - depth of the nearest checkpoint above v) * weight whose nearest checkpoint is v. O(n).
    """
    chosen = tree.check_checkpoints(checkpoints)
    resume = [0] * tree.size
    served = dict.fromkeys(sorted(chosen), 0.0)
    above: dict[int, int] = {}
    for node in range(1, tree.size):
        over = resume[tree.parents[node]]
        if node in chosen:
            above[node] = tree.depths[over]
            resume[node] = node
        else:
            resume[node] = over
        if resume[node]:
            served[resume[node]] += tree.weights[node]
    return {node: (tree.depths[node] - above[node]) * served[node] for node in served}
