"""Tree solvers against enumeration: exact, penalised, priced with its bound, and greedy."""

from __future__ import annotations

import random

import pytest

from spc_sglang.planning import PrefixTree, plan_tree, tree_replay
from spc_sglang.planning.compression import compress
from spc_sglang.planning.penalised import PenalisedTree
from spc_sglang.planning.solve_exact import solve_exact
from spc_sglang.planning.solve_greedy import CheckpointSet
from tests.planning.trees import enumerated_curve, random_tree

THREE_LEAVES = PrefixTree([-1, 0, 1, 1, 1], [0, 1, 2, 2, 2], [0, 0, 1, 1, 1])


def small_trees(seed: int, count: int, **kind: bool) -> list[PrefixTree]:
    rng = random.Random(seed)
    return [
        random_tree(rng, rng.randint(1, 8), reach=rng.choice((0, 1, 2, 3)), **kind)
        for _ in range(count)
    ]


def test_trees_are_not_convex() -> None:
    """A trunk and three leaves of one token: V = 6, 3, 2, 0, and every method gets there."""
    for method in ("auto", "exact", "price"):
        plans = [plan_tree(THREE_LEAVES, m, method=method) for m in range(4)]
        assert [plan.replay for plan in plans] == [6, 3, 2, 0], method
    # the chord from V(1) = 3 to V(3) = 0: a strict lower bound where V is not convex
    assert plan_tree(THREE_LEAVES, 2, method="price").lower_bound == 1.5


def test_every_method_on_every_budget_of_random_trees() -> None:
    """1,500 trees, up to 4 budgets: exact and auto optimal, bounds below, the others near."""
    rng = random.Random(50)
    misses = {"price": 0, "greedy": 0}
    cases = 0
    for tree in small_trees(41, 1500):
        curve = enumerated_curve(tree)
        for budget in sorted({0, tree.size, rng.randrange(tree.size), rng.randrange(tree.size)}):
            optimum = curve[min(budget, len(curve) - 1)]
            cases += 1
            for method in ("auto", "exact", "price", "greedy"):
                plan = plan_tree(tree, budget, method=method)
                case = (tree, budget, plan, optimum)
                assert len(plan.checkpoints) <= budget, case
                assert plan.replay == tree_replay(tree, plan.checkpoints) >= optimum, case
                assert plan.lower_bound <= optimum * (1 + 1e-12), case
                if method in misses:
                    misses[method] += plan.replay > optimum
                else:
                    assert plan.replay == optimum, case
                if method == "greedy":
                    saving, most = curve[0] - plan.replay, curve[0] - optimum
                    assert saving >= 0.63 * most, case
    assert misses["price"] <= cases // 1000, (misses, cases)
    assert misses["greedy"] <= cases // 10, (misses, cases)


def test_penalised_solver_is_exact() -> None:
    """3,000 trees with whole and fractional weights at random prices, zero included."""
    rng = random.Random(42)
    for fractions in (False, True):
        for tree in small_trees(43 + fractions, 1500, fractions=fractions):
            price = rng.choice((0, 0.25, 1, 2, 3.5, 5, 7, 10, 20))
            nodes = PenalisedTree(tree).solve(price)
            got = tree_replay(tree, nodes) + price * len(nodes)
            best = min(v + price * m for m, v in enumerate(enumerated_curve(tree)))
            assert got == pytest.approx(best, abs=1e-9), (tree, price, nodes)


def test_thresholds_say_who_is_checkpointed_under_which_anchor() -> None:
    """thr_v: with the anchor above v at depth x, v is checkpointed iff x < thr_v."""
    # v at depth 10 with weight 2 and price 6: worth it iff 2 * (10 - x) > 6
    tree = PrefixTree([-1, 0], [0, 10], [0, 2])
    assert PenalisedTree(tree).thresholds(6.0)[1] == 7.0
    assert PenalisedTree(tree).solve(19.9) == (1,)
    assert PenalisedTree(tree).solve(20.0) == ()


def test_expired_breakpoints_on_deep_chains() -> None:
    """600 chains and near-chains of 30 nodes against the exact DP through the whole price range."""
    rng = random.Random(44)
    for _ in range(600):
        tree = random_tree(rng, 30, reach=rng.choice((1, 2)), step=9)
        budget = rng.randint(1, 12)
        exact = tree_replay(tree, solve_exact(tree, budget))
        plan = plan_tree(tree, budget, method="price")
        assert plan.lower_bound <= exact * (1 + 1e-12), (tree, budget, plan, exact)
        assert exact <= plan.replay <= exact * 1.05 + 1e-9, (tree, budget, plan, exact)


def test_medium_trees_are_within_a_percent() -> None:
    """60 trees of 60 nodes: mean gap under 0.1 %, none over 2 %."""
    rng = random.Random(45)
    gaps = []
    for _ in range(60):
        tree = random_tree(rng, 60, reach=rng.choice((0, 5, 20)), step=300)
        budget = rng.randint(2, 25)
        exact = plan_tree(tree, budget, method="exact").replay
        priced = plan_tree(tree, budget, method="price").replay
        gaps.append(priced / exact - 1 if exact else 0.0)
    assert sum(gaps) / len(gaps) < 0.001 and max(gaps) < 0.02, gaps


def test_support_compression_keeps_the_optimum() -> None:
    """800 trees: the same curve on fewer nodes, and a chain without weight vanishes."""
    for tree in small_trees(46, 800):
        small = compress(tree)
        curve = enumerated_curve(tree)
        shorter = enumerated_curve(small.tree)
        assert shorter == curve[: len(shorter)], tree
        assert set(curve[len(shorter) :]) <= {shorter[-1]}, tree
    chain = PrefixTree([-1, 0, 1, 2, 3], [0, 4, 5, 9, 12], [0, 0, 0, 3, 0])
    assert compress(chain).nodes == (0, 3)


def test_lazy_gains_and_losses_equal_recomputed_ones() -> None:
    """300 trees: `worth` after any adds and removes is the true change in replay."""
    rng = random.Random(47)
    for tree in small_trees(48, 300):
        state = CheckpointSet(tree)
        for _ in range(12):
            if tree.size == 1:
                break
            node = rng.randrange(1, tree.size)
            without = tree_replay(tree, state.chosen - {node})
            change = without - tree_replay(tree, state.chosen | {node})
            assert state.worth(node) == change, (tree, state.chosen, node)
            (state.remove if node in state.chosen else state.add)(node)


def test_a_path_as_a_tree_is_the_single_prefix_problem() -> None:
    """Exact and priced plans of a chain match `place` on the same weights."""
    from spc_sglang.placement import OverlapWeights, place

    rng = random.Random(49)
    for _ in range(100):
        tree = random_tree(rng, rng.randint(2, 20), reach=1)
        if not any(tree.weights[1:]):
            continue
        weights = OverlapWeights(tree.depths[1:], tree.weights[1:])
        for budget in (0, 1, 3, 7):
            best = place(weights, budget).replay
            for method in ("auto", "exact", "price"):
                assert plan_tree(tree, budget, method=method).replay == best, (tree, budget)


def test_tiny_and_weightless_trees() -> None:
    """Only a root, or nothing to serve: no checkpoints, no replay, no error."""
    for tree in (PrefixTree([-1], [0], [3]), PrefixTree([-1, 0, 0], [0, 2, 3], [1, 0, 0])):
        for method in ("auto", "exact", "price", "greedy"):
            plan = plan_tree(tree, 3, method=method)
            assert (plan.checkpoints, plan.replay, plan.lower_bound) == ((), 0.0, 0.0)


@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ("empty", ([], [], [])),
        ("2 parents", ([-1, 0], [0], [1])),
        ("parent 0 and depth 0", ([0], [0], [1])),
        ("depth 3", ([-1], [3], [1])),
        ("node 1 has parent 2", ([-1, 2, 0], [0, 1, 2], [0, 1, 1])),
        ("node 1 has parent -1", ([-1, -1], [0, 1], [0, 1])),
        ("node 2 at depth 4", ([-1, 0, 1], [0, 4, 4], [0, 1, 1])),
        ("weight -1.0 of node 1", ([-1, 0], [0, 1], [0, -1])),
        ("weight nan of node 1", ([-1, 0], [0, 1], [0, float("nan")])),
        ("1.5", ([-1, 0], [0, 1.5], [0, 1])),
    ],
)
def test_bad_trees_are_refused(named: str, arguments: tuple[list, list, list]) -> None:
    with pytest.raises(ValueError) as error:
        PrefixTree(*arguments)
    assert named in str(error.value)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="budget -1"):
        plan_tree(THREE_LEAVES, -1)
    with pytest.raises(ValueError, match="'fast'"):
        plan_tree(THREE_LEAVES, 1, method="fast")
    with pytest.raises(ValueError, match="checkpoint 0"):
        tree_replay(THREE_LEAVES, [0])
    with pytest.raises(ValueError, match="checkpoint 9"):
        tree_replay(THREE_LEAVES, [9])
