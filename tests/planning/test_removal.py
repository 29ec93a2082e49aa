"""The loss of one checkpoint is exact, and only neighbours change when it goes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, replay
from spc_sglang.planning import (
    PrefixTree,
    path_removal_losses,
    tree_removal_losses,
    tree_replay,
)
from tests.planning.trees import random_tree


def test_path_losses_are_the_change_in_replay() -> None:
    """1,000 laws with any checkpoints, observed or not."""
    rng = np.random.default_rng(81)
    for _ in range(1000):
        dense = rng.integers(0, 5, int(rng.integers(1, 30))).astype(float)
        dense[0] += 1
        weights = OverlapWeights.from_dense(dense)
        count = int(rng.integers(1, dense.size + 1))
        depths = np.sort(rng.choice(dense.size, count, replace=False) + 1).tolist()
        losses = path_removal_losses(weights, depths)
        before = replay(weights, depths)
        for i, loss in enumerate(losses):
            rest = depths[:i] + depths[i + 1 :]
            assert replay(weights, rest) - before == loss, (dense.tolist(), depths, i)


def test_only_the_neighbours_of_a_removed_checkpoint_change() -> None:
    rng = np.random.default_rng(82)
    weights = OverlapWeights.from_dense(rng.integers(1, 9, 80))
    depths = list(range(5, 80, 7))
    before = path_removal_losses(weights, depths)
    for i in range(len(depths)):
        after = np.insert(path_removal_losses(weights, depths[:i] + depths[i + 1 :]), i, np.nan)
        changed = np.flatnonzero(after != before)
        assert set(changed.tolist()) <= {i - 1, i, i + 1}


def test_tree_losses_are_the_change_in_replay() -> None:
    """1,000 trees with random checkpoints."""
    rng = random.Random(83)
    for _ in range(1000):
        tree = random_tree(rng, rng.randint(2, 14), reach=rng.choice((0, 1, 3)))
        chosen = {v for v in range(1, tree.size) if rng.random() < 0.5}
        before = tree_replay(tree, chosen)
        losses = tree_removal_losses(tree, chosen)
        assert list(losses) == sorted(chosen)
        for node, loss in losses.items():
            change = tree_replay(tree, chosen - {node}) - before
            assert change == loss, (tree, chosen, node)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint 12"):
        path_removal_losses(OverlapWeights.from_samples([4]), [12])
    with pytest.raises(ValueError, match="checkpoint 5"):
        tree_removal_losses(PrefixTree([-1, 0], [0, 1], [0, 1]), [5])
