"""When a tree splits into single prefixes exactly, and when it does not."""

from __future__ import annotations

import random

import pytest

from spc_sglang.planning import PrefixTree, allocate, plan_tree, split_branches, tree_replay
from spc_sglang.planning.split import BranchSplit
from tests.planning.trees import enumerated_curve, random_tree


def split_nodes(split: BranchSplit, budget: int) -> list[int]:
    """Checkpoints that the entries' joint optimum puts on the tree."""
    if not split.entries:
        return []
    joint = allocate([entry.weights for entry in split.entries], budget)
    return [
        entry.node_at(depth)
        for entry, placement in zip(split.entries, joint.placements, strict=True)
        for depth in placement.depths
    ]


def hang_chains(
    rng: random.Random, sizes: list[int], parents: list[int], depths: list[int]
) -> None:
    """Append one chain to a random existing node from `parents` a size, in place."""
    for size in sizes:
        above = 0
        for _ in range(size):
            parents.append(above)
            depths.append(depths[above] + rng.randint(1, 5))
            above = len(parents) - 1


def test_branches_without_shared_tokens_split_exactly() -> None:
    """200 stars at the root: joint price optimum = tree optimum for every budget."""
    rng = random.Random(61)
    for _ in range(200):
        parents, depths = [-1], [0]
        hang_chains(rng, [rng.randint(1, 3) for _ in range(rng.randint(2, 3))], parents, depths)
        tree = PrefixTree(parents, depths, [rng.randint(1, 5) for _ in parents])
        split = split_branches(tree)
        assert split.exact and split.case == "disjoint" and split.shape == "star", (tree, split)
        for budget, optimum in enumerate(enumerated_curve(tree)):
            nodes = split_nodes(split, budget)
            assert tree_replay(tree, nodes) == optimum, (tree, budget, nodes)
            plan = plan_tree(tree, budget)
            assert (plan.replay, plan.method) == (optimum, "split")


def test_checkpointed_branching_nodes_split_exactly() -> None:
    """400 trees whose branching nodes hold checkpoints: the rest is independent chains."""
    rng = random.Random(62)
    for _ in range(400):
        tree = random_tree(rng, rng.randint(2, 9), reach=rng.choice((0, 2)))
        children = [tree.parents.count(v) for v in range(tree.size)]
        fixed = frozenset(v for v in range(1, tree.size) if children[v] > 1)
        split = split_branches(tree, checkpointed=fixed)
        assert split.exact, (tree, split)
        for budget, optimum in enumerate(enumerated_curve(tree, fixed=fixed)):
            nodes = split_nodes(split, budget)
            assert len(nodes) <= budget
            assert tree_replay(tree, fixed | set(nodes)) == optimum, (tree, budget, nodes)


def test_teeth_without_checkpoints_lump_at_their_attachment() -> None:
    """400 trees with checkpoints on one root path only: one prefix plus a constant."""
    rng = random.Random(63)
    for _ in range(400):
        tree = random_tree(rng, rng.randint(2, 9))
        node, spine = rng.randrange(1, tree.size), set()
        while node:
            spine.add(node)
            node = tree.parents[node]
        split = split_branches(tree, spine=spine)
        assert split.exact and split.case == "lumped"
        for budget, optimum in enumerate(enumerated_curve(tree, allowed=spine)):
            nodes = split_nodes(split, budget)
            assert set(nodes) <= spine
            assert tree_replay(tree, nodes) == optimum, (tree, spine, budget, nodes)
        if split.entries:
            weights = split.entries[0].weights
            total = float(weights.weights @ weights.depths) + split.constant
            assert total == tree_replay(tree, ())


def test_weightless_teeth_leave_a_path() -> None:
    """A comb whose teeth carry no weight is one prefix."""
    comb = PrefixTree([-1, 0, 1, 1, 2, 2], [0, 3, 5, 6, 9, 7], [0, 2, 1, 0, 4, 0])
    split = split_branches(comb)
    assert (split.shape, split.case, split.exact) == ("path", "path", True)
    assert split.entries[0].nodes == (1, 2, 4)


def test_shared_trunk_does_not_split_and_says_which_node() -> None:
    """A trunk of 10 tokens and two leaves: serving both branches at once is the better plan."""
    tree = PrefixTree([-1, 0, 1, 1], [0, 10, 11, 11], [0, 0, 1, 1])
    split = split_branches(tree)
    assert (split.exact, split.case, split.shape, split.entries) == (False, "joint", "star", ())
    assert "node 1 at depth 10" in split.reason
    # either branch alone would put its one checkpoint on its leaf: 11; the trunk saves more: 2
    assert tree_replay(tree, [2]) == 11
    assert plan_tree(tree, 1).replay == 2


def test_forcing_a_checkpoint_on_every_branching_node_is_often_worse() -> None:
    """The tempting shortcut loses on a large share of random trees."""
    rng = random.Random(64)
    worse = total = 0
    for _ in range(300):
        tree = random_tree(rng, 8)
        children = [tree.parents.count(v) for v in range(tree.size)]
        fixed = frozenset(v for v in range(1, tree.size) if children[v] > 1)
        if not fixed:
            continue
        curve, forced = enumerated_curve(tree), enumerated_curve(tree, fixed=fixed)
        for extra, cost in enumerate(forced[:2]):
            total += 1
            worse += cost > curve[len(fixed) + extra]
    assert worse > total // 4, (worse, total)


def test_shapes() -> None:
    """Path, star with a trunk, comb, and a tree that is neither."""
    path = PrefixTree([-1, 0, 1], [0, 1, 2], [0, 1, 1])
    star = PrefixTree([-1, 0, 1, 1, 1], [0, 1, 2, 2, 2], [0, 1, 1, 1, 1])
    comb = PrefixTree([-1, 0, 1, 1, 2, 2], [0, 1, 2, 2, 3, 3], [0, 1, 1, 1, 1, 1])
    bush = PrefixTree([-1, 0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1])
    shapes = [split_branches(tree).shape for tree in (path, star, comb, bush)]
    assert shapes == ["path", "star", "comb", "tree"]
    assert split_branches(comb, checkpointed=[1, 2]).case == "checkpointed"
    assert not split_branches(comb, checkpointed=[1]).exact


def test_bad_spines_are_refused() -> None:
    bush = PrefixTree([-1, 0, 0], [0, 1, 2], [0, 1, 1])
    with pytest.raises(ValueError, match="spine node 1"):
        split_branches(bush, spine=[1, 2])
    with pytest.raises(ValueError, match="checkpoint 7"):
        split_branches(bush, checkpointed=[7])
    with pytest.raises(ValueError, match=r"\[1\]"):
        split_branches(bush, checkpointed=[1], spine=[2])
