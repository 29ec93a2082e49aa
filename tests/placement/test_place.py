"""Both single-prefix solvers against enumeration, the recurrence and each other."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from spc_sglang.placement import (
    Cost,
    OverlapWeights,
    balanced,
    marginal_prices,
    mean_replay,
    place,
    replay,
    restore_depths,
    value_curve,
)
from spc_sglang.placement.grid import Grid
from spc_sglang.placement.layered import layered_choice, layered_rows
from spc_sglang.placement.price import Vertex, ends, penalised_solver, search
from spc_sglang.placement.reduction import reduce
from tests.placement.brute import enumerated_curve, recurrence

METHODS = ("hull", "price")


def random_dense(rng: np.random.Generator, length: int) -> np.ndarray:
    """Whole-number weights, many of them zero, so ties and gaps are common."""
    dense = rng.integers(0, 6, length) * rng.integers(0, 2, length)
    dense[rng.integers(length)] += 1
    return dense.astype(float)


def two_gaussians() -> OverlapWeights:
    """N = 200, 0.6 N(50, 12) + 0.4 N(140, 15), discretised on 1..200."""
    t = np.arange(1, 201)
    density = 0.6 * np.exp(-(((t - 50) / 12) ** 2) / 2) / 12
    density += 0.4 * np.exp(-(((t - 140) / 15) ** 2) / 2) / 15
    return OverlapWeights.from_dense(density / density.sum())


@pytest.mark.parametrize("method", METHODS)
def test_optimum_of_every_budget_on_random_cases(method: str) -> None:
    """2,000 laws on up to 9 positions, every budget from 0 to beyond N: equal to enumeration."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        dense = random_dense(rng, int(rng.integers(1, 10)))
        curve = enumerated_curve(dense)
        weights = OverlapWeights.from_dense(dense)
        for budget in range(dense.size + 2):
            placed = place(weights, budget, method=method)
            expected = curve[min(budget, dense.size)]
            case = (dense.tolist(), budget, placed)
            assert placed.replay == expected, case
            assert replay(weights, placed.depths) == placed.replay, case
            # support lemma: only observed depths, each of them useful, so never more than those
            assert set(placed.depths) <= set(weights.depths.tolist()), case
            assert len(placed.depths) == min(budget, weights.depths.size), case


@pytest.mark.parametrize("method", METHODS)
def test_optimum_under_grid_and_cost_on_random_cases(method: str) -> None:
    """1,500 cases over steps, offsets, arbitrary sets, attention, tables and restore costs."""
    rng = np.random.default_rng(2)
    for _ in range(1500):
        length = int(rng.integers(2, 9))
        dense = random_dense(rng, length)
        step = int(rng.integers(1, length + 1))
        offset = int(rng.integers(0, step))
        some = sorted(rng.choice(np.arange(1, length + 1), 2, replace=False).tolist())
        grid, allowed = [
            (step, set(range(step, length + 1, step))),
            (Grid(step, offset), set(range(offset or step, length + 1, step))),
            (some, set(some)),
        ][rng.integers(3)]
        restore = float(rng.integers(0, 4))
        table = np.cumsum(rng.integers(0, 4, length)).astype(float)
        cost = [
            Cost.tokens(restore),
            Cost.with_attention(0.5, restore),
            Cost.measured(np.arange(1, length + 1), table, restore),
        ][rng.integers(3)]
        budget = int(rng.integers(0, length + 1))
        expected = enumerated_curve(dense, allowed=allowed, cost=cost)[budget]
        placed = place(
            OverlapWeights.from_dense(dense), budget, grid=grid, cost=cost, method=method
        )
        case = (dense.tolist(), grid, cost, table.tolist(), budget, placed, expected)
        assert placed.replay == pytest.approx(expected, abs=1e-9), case
        assert set(placed.depths) <= allowed, case
        assert len(placed.depths) <= budget, case


def test_recurrence_as_printed() -> None:
    """The O(N^2 M) recurrence and both solvers agree on 200 laws with float weights."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        dense = rng.random(int(rng.integers(1, 30)))
        budget = int(rng.integers(0, 8))
        expected = recurrence(dense, budget)
        weights = OverlapWeights.from_dense(dense)
        for method in METHODS:
            got = place(weights, budget, method=method).replay
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-12), (dense.tolist(), budget)
        assert value_curve(weights, budget)[-1] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_two_gaussian_fixture() -> None:
    """Balanced 14.18, DP 8.61, 39.3 % less."""
    weights = two_gaussians()
    even = mean_replay(weights, balanced(200, 6))
    assert even == pytest.approx(14.18, abs=0.005)
    for method in METHODS:
        best = place(weights, 6, method=method).mean_replay
        assert best == pytest.approx(8.61, abs=0.005)
        assert 1 - best / even == pytest.approx(0.393, abs=0.0005)


def test_methods_agree_on_large_laws() -> None:
    """60 laws of 300-900 depths, spiky and smooth: equal replay within rounding."""
    rng = np.random.default_rng(4)
    for case in range(60):
        n = int(rng.integers(300, 900))
        depths = np.sort(rng.choice(20 * n, n, replace=False)) + 1
        weights = OverlapWeights(depths, rng.pareto(1.0, n) + 1e-3)
        budget = int(rng.integers(1, 40))
        hull, price = (place(weights, budget, method=method) for method in METHODS)
        assert len(hull.depths) == len(price.depths) == budget
        assert price.replay == pytest.approx(hull.replay, rel=1e-12), (case, budget)


def test_curve_is_convex_and_prices_never_rise() -> None:
    """V(0..M) on 300 integer laws, exactly."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        weights = OverlapWeights.from_dense(random_dense(rng, int(rng.integers(1, 40))))
        curve = value_curve(weights, 12)
        prices = marginal_prices(curve)
        assert (prices >= 0).all() and (np.diff(prices) <= 0).all(), (weights, curve)
        assert curve[0] == replay(weights, ())


def test_million_tokens_floats_against_exact_integers() -> None:
    """N = 1e6: float weights lose nothing against their quantised, exactly solved twin."""
    rng = np.random.default_rng(6)
    depths = np.sort(rng.choice(1_000_000, 400, replace=False)) + 1
    weights = rng.random(400)
    whole = np.maximum(1, np.round(weights * 2**40)).astype(np.int64)
    x = [0, *depths.tolist()]
    w = [0, *whole.tolist()]
    P, T = [0], [0]
    for position, weight in zip(x[1:], w[1:], strict=True):
        P.append(P[-1] + weight)
        T.append(T[-1] + weight * position)
    base = [0] + [x[s] * P[s - 1] - T[s - 1] for s in range(1, len(x))]
    rows, choices = layered_rows(x, P, T, base, 24)
    assert all(isinstance(value, int) for value in rows[-1])
    exact = [x[s] for s in layered_choice(choices, 400)]
    law = OverlapWeights(depths, weights, 1_000_000)
    for method in METHODS:
        placed = place(law, 24, method=method)
        assert placed.replay == pytest.approx(rows[24][-1] / 2**40, rel=1e-9)
        assert placed.replay <= replay(law, exact) * (1 + 1e-12)


def test_memory_is_a_few_rows_whatever_the_budget() -> None:
    """The main path is O(n): under 600 bytes a depth at n = 8,000, at M = 8 and at 64."""
    rng = np.random.default_rng(7)
    weights = OverlapWeights.from_dense(rng.random(8_000))
    peaks = []
    for budget in (8, 64):
        tracemalloc.start()
        place(weights, budget)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 600 * 8_000, peaks
    assert peaks[1] < 1.2 * peaks[0], peaks


def test_number_of_sweeps_stays_small() -> None:
    """Typical laws need about ten prices; weights over 300 orders of magnitude some more."""
    rng = np.random.default_rng(8)
    steep = OverlapWeights(np.arange(1, 1001), 2.0 ** -np.arange(1.0, 1001.0))
    flat = OverlapWeights.from_dense(rng.random(2048))
    for weights, limit in ((flat, 16), (steep, 64)):
        for budget in (1, 2, 5, 16, 64, 200):
            sweeps = count_sweeps(weights, budget)
            assert sweeps <= limit, (weights.length, budget, sweeps)


def count_sweeps(weights: OverlapWeights, budget: int) -> int:
    problem = reduce(weights, Grid(), Cost.tokens())
    solve, prices = penalised_solver(problem), []

    def counted(price: float) -> Vertex[np.ndarray]:
        prices.append(price)
        return solve(price)

    search(counted, budget, *ends(problem))
    return len(prices)


def test_same_input_same_output_in_any_order() -> None:
    """Depths may come shuffled and split; the placement does not change."""
    rng = np.random.default_rng(9)
    samples = rng.integers(1, 60, 200)
    counted = np.bincount(samples, minlength=60)[1:]
    expected = place(OverlapWeights.from_dense(counted), 5)
    for _ in range(20):
        assert place(OverlapWeights.from_samples(rng.permutation(samples)), 5) == expected


def test_float_placements_are_optimal_in_rational_arithmetic() -> None:
    """100 laws, weights over six orders of magnitude: the chosen sets are exact optima."""
    rng = np.random.default_rng(10)
    for _ in range(100):
        n = int(rng.integers(5, 40))
        depths = np.sort(rng.choice(int(10 ** rng.uniform(2, 6)), n, replace=False)) + 1
        weights = 10 ** rng.uniform(-6, 0, n)
        budget = int(rng.integers(1, n))
        exact = [Fraction(weight) for weight in weights.tolist()]
        x, P, T = [0, *depths.tolist()], [Fraction(0)], [Fraction(0)]
        for position, weight in zip(x[1:], exact, strict=True):
            P.append(P[-1] + weight)
            T.append(T[-1] + weight * position)
        base = [Fraction(0)] + [x[s] * P[s - 1] - T[s - 1] for s in range(1, n + 1)]
        optimum = layered_rows(x, P, T, base, budget)[0][-1][-1]
        for method in METHODS:
            chosen = place(OverlapWeights(depths, weights), budget, method=method).depths
            at = restore_depths(depths, chosen).tolist()
            cost = sum(w * (t - back) for w, t, back in zip(exact, x[1:], at, strict=True))
            assert cost == optimum, (depths.tolist(), weights.tolist(), budget, method)
