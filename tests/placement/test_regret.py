"""Distances, the published and the sharp bounds, and drift."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, mean_replay, place
from spc_sglang.placement.distance import kolmogorov, l1, total_variation
from spc_sglang.placement.histogram import ExponentialHistogram, WindowHistogram
from spc_sglang.placement.regret import (
    dkw_radius,
    drift_error,
    newest_sample_l1,
    regret_between,
    regret_from_samples,
    replaced_sample_l1,
)


def random_law(rng: np.random.Generator, length: int) -> OverlapWeights:
    dense = rng.random(length) * rng.integers(0, 2, length)
    dense[rng.integers(length)] += 0.1
    return OverlapWeights.from_dense(dense)


def test_distances_against_dense_definitions() -> None:
    rng = np.random.default_rng(101)
    for _ in range(300):
        length = int(rng.integers(1, 40))
        p, q = random_law(rng, length), random_law(rng, length)
        difference = p.dense() / p.total - q.dense() / q.total
        assert l1(p, q) == pytest.approx(np.abs(difference).sum(), abs=1e-12)
        assert total_variation(p, q) == pytest.approx(l1(p, q) / 2)
        assert kolmogorov(p, q) == pytest.approx(np.abs(np.cumsum(difference)).max(), abs=1e-12)
        assert kolmogorov(p, q) <= total_variation(p, q) + 1e-12


def test_cost_of_any_schedule_moves_by_at_most_n_times_tv() -> None:
    """All schedules of N = 7, 80 pairs; (N - 1) TV is attained, so N * L1 is loose by two."""
    rng = np.random.default_rng(102)
    schedules = [c for m in range(4) for c in combinations(range(1, 8), m)]
    for _ in range(80):
        p, q = random_law(rng, 7), random_law(rng, 7)
        worst = max(abs(mean_replay(p, c) - mean_replay(q, c)) for c in schedules)
        assert worst <= 7 * total_variation(p, q) + 1e-12, (p, q)
    # all mass on the last token against all mass on the first, both resuming from a state there
    end, start = OverlapWeights([7], [1], 7), OverlapWeights([1], [1], 7)
    gap = mean_replay(end, (1,)) - mean_replay(start, (1,))
    assert gap == 6 * total_variation(end, start) == 6 * l1(end, start) / 2


def test_regret_never_exceeds_the_bounds_and_they_are_ordered() -> None:
    """500 pairs of laws: regret <= 2 N sup|F - G| <= 2 N TV <= published."""
    rng = np.random.default_rng(103)
    for _ in range(500):
        length, budget = int(rng.integers(2, 40)), int(rng.integers(1, 6))
        true, estimate = random_law(rng, length), random_law(rng, length)
        regret = mean_replay(true, place(estimate, budget).depths)
        regret -= place(true, budget).mean_replay
        bounds = regret_between(true, estimate)
        assert -1e-9 <= regret <= bounds.kolmogorov + 1e-9, (true, estimate, budget)
        assert bounds.kolmogorov <= bounds.total_variation + 1e-9
        assert bounds.published_l1 == pytest.approx(2 * bounds.total_variation)


def test_dimension_free_bound_needs_738_samples_for_a_tenth() -> None:
    """2 N radius = 0.1 N at n = 738 for every N; L1 is vacuous at gamma = 0.99 (n = 199)."""
    for length in (100, 2000, 100_000):
        bounds = regret_from_samples(length, 738)
        assert bounds.kolmogorov == pytest.approx(0.1 * length, rel=1e-3)
    bounds = regret_from_samples(2000, 199)
    assert bounds.total_variation > bounds.vacuous_above > bounds.kolmogorov
    # with few distinct depths the L1 form does say something
    assert regret_from_samples(2000, 20_000, support=4).total_variation < 2000


def test_dkw_holds_about_as_often_as_promised() -> None:
    """2,000 samples of 50: the radius at delta = 0.1 is exceeded in at most 10 % of them."""
    rng = np.random.default_rng(104)
    true = OverlapWeights.from_dense(np.ones(30))
    exceeded = 0
    for _ in range(2000):
        seen = OverlapWeights.from_samples(rng.integers(1, 31, 50), 30)
        exceeded += kolmogorov(true, seen) > dkw_radius(50, 0.1)
    assert exceeded <= 200


def test_one_sample_moves_the_histogram_this_far() -> None:
    """Replacing one of n samples: 2 / n in L1, reached; a new exponential one: 2 (1 - gamma)."""
    window, before = WindowHistogram(10), None
    for depth in (3, *[5] * 9):
        window.observe(depth, 9)
    before = window.weights(9)
    window.observe(7, 9)
    assert l1(before, window.weights(9)) == pytest.approx(replaced_sample_l1(10)) == 0.2

    learner = ExponentialHistogram(0.9)
    for _ in range(2000):
        learner.observe(3, 9)
    before = learner.weights(9)
    learner.observe(8, 9)
    assert l1(before, learner.weights(9)) == pytest.approx(newest_sample_l1(0.9))


def test_drift_trades_bias_for_noise() -> None:
    """No drift: forget slowly; fast drift: forget faster. Bias as in the geometric sum."""
    gammas = (0.8, 0.9, 0.97, 0.99, 0.997)

    def best(drift: float) -> float:
        return min(gammas, key=lambda gamma: drift_error(gamma, drift).total)

    assert best(0.0) == 0.997
    assert best(1e-5) >= 0.99
    assert best(0.01) <= 0.97
    gamma, drift = 0.9, 0.001
    ages = np.arange(5000)
    expected = ((1 - gamma) * gamma**ages * ages * drift).sum()
    assert drift_error(gamma, drift).bias == pytest.approx(expected)


def test_bias_bounds_a_moving_law() -> None:
    """A law that slides by `drift` a request: the expected histogram is within the bias."""
    drift, gamma, steps = 0.002, 0.95, 400
    shares = np.clip(drift * np.arange(steps), 0.0, 1.0)  # P(depth = 2), sliding up
    ages = np.arange(steps)[::-1]
    expected = ((1 - gamma) * gamma**ages * shares).sum() / (1 - gamma**steps)
    assert abs(shares[-1] - expected) <= drift_error(gamma, drift).bias + 1e-9


def test_bad_input_is_refused() -> None:
    for call, named in (
        (lambda: regret_from_samples(100, 0), "samples 0"),
        (lambda: regret_from_samples(100, 10, delta=1.0), r"delta 1\.0"),
        (lambda: replaced_sample_l1(0), "window 0"),
        (lambda: newest_sample_l1(1.0), r"gamma 1\.0"),
        (lambda: drift_error(0.9, -0.1), r"drift -0\.1"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
