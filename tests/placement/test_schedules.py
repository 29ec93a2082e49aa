"""Schedules that ignore the law, the evaluation of any schedule, and when balanced is optimal."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from spc_sglang.placement import (
    OverlapWeights,
    balanced,
    block,
    greedy,
    logarithmic,
    place,
    random_spaced,
    reduction_factor,
    replay,
    restore_depths,
    saw,
    sqrt_spaced,
    worst_replay,
)


def gaps(length: int, depths: tuple[int, ...]) -> np.ndarray:
    return np.diff([0, *depths, length + 1])


def test_uniform_law_and_worst_case_iff_gaps_differ_by_at_most_one() -> None:
    """All schedules of N <= 10: uniform-optimal exactly when balanced, and then worst-optimal."""
    for length in range(1, 11):
        uniform = OverlapWeights.from_dense(np.ones(length))
        for budget in range(length + 1):
            schedules = list(combinations(range(1, length + 1), budget))
            costs = [replay(uniform, c) for c in schedules]
            worsts = [worst_replay(length, c) for c in schedules]
            for schedule, cost, worst in zip(schedules, costs, worsts, strict=True):
                even = int(np.ptp(gaps(length, schedule))) <= 1
                assert (cost == min(costs)) == even, (length, schedule)
                assert not even or worst == min(worsts), (length, schedule)


def test_balanced_closed_forms() -> None:
    """E = [(K - rho) q (q - 1) / 2 + rho (q + 1) q / 2] / N, worst = ceil((N+1)/(M+1)) - 1."""
    for length in (1, 2, 7, 50, 199, 1000):
        for budget in (0, 1, 2, 6, 40, 2000):
            schedule = balanced(length, budget)
            count = min(budget, length)
            q, rho = divmod(length + 1, count + 1)
            expected = ((count + 1 - rho) * q * (q - 1) + rho * (q + 1) * q) / 2 / length
            assert len(schedule) == count
            assert saw(length, schedule).mean() == pytest.approx(expected)
            assert worst_replay(length, schedule) == -(-(length + 1) // (count + 1)) - 1
            assert saw(length, schedule).max() == worst_replay(length, schedule)


def test_exchange_gain_of_one_token_is_gap_difference_minus_one() -> None:
    """Moving one token from a gap g to a gap h saves g - h - 1 under the uniform law, not g - h."""
    for g in range(1, 12):
        for h in range(1, 12):
            uniform = OverlapWeights.from_dense(np.ones(g + h - 1))
            if g - 1 >= 1:
                gain = replay(uniform, (g,)) - replay(uniform, (g - 1,))
                assert gain == g - h - 1, (g, h)


def test_block_and_sqrt() -> None:
    """Multiples of the block; blocks of ceil(sqrt(N))."""
    assert block(10, 3) == (3, 6, 9)
    assert block(10, 11) == ()
    assert sqrt_spaced(16) == (4, 8, 12, 16)
    assert sqrt_spaced(17) == (5, 10, 15)
    assert worst_replay(10_000, sqrt_spaced(10_000)) == 99


def test_logarithmic_and_random_are_distinct_and_in_range() -> None:
    """Always min(M, N) distinct positions in 1..N, geometric where there is room."""
    assert logarithmic(10_000, 4) == (10, 100, 1000, 10_000)
    for length in (1, 2, 5, 30, 1000):
        for budget in (0, 1, 3, 8, 29, 2000):
            for schedule in (logarithmic(length, budget), random_spaced(length, budget, seed=3)):
                assert len(set(schedule)) == min(budget, length)
                assert list(schedule) == sorted(schedule)
                assert all(1 <= depth <= length for depth in schedule)


def test_greedy_adds_the_best_single_checkpoint() -> None:
    """300 laws against the naive twin that tries every depth; first step optimal, rest near."""
    rng = np.random.default_rng(31)
    for _ in range(300):
        dense = rng.integers(0, 5, int(rng.integers(2, 14))).astype(float)
        dense[-1] += 1
        weights = OverlapWeights.from_dense(dense)
        chosen: tuple[int, ...] = ()
        for budget in range(1, 5):
            got = greedy(weights, budget)
            naive = min((replay(weights, (*chosen, t)), t) for t in weights.depths.tolist())
            assert replay(weights, got) == naive[0], (dense.tolist(), budget, got)
            chosen = got
        assert replay(weights, greedy(weights, 1)) == place(weights, 1).replay


def test_evaluation_of_any_schedule() -> None:
    """Restore depths, the saw and the reduction factor by hand on a small case."""
    assert restore_depths([1, 2, 3, 7], [3, 5]).tolist() == [0, 0, 3, 5]
    assert saw(7, [3, 5]).tolist() == [1, 2, 0, 1, 0, 1, 2]
    weights = OverlapWeights([2, 4, 7], [1, 1, 2])
    assert replay(weights, [3, 5]) == 2 + 1 + 4
    assert reduction_factor(weights, [3, 5]) == 20 / 7
    assert reduction_factor(weights, [2, 4, 7]) == float("inf")
    # a checkpoint set is a set: order and repeats do not matter
    assert replay(weights, [5, 3, 5]) == replay(weights, [3, 5])
