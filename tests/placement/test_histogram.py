"""Learning the overlap law: decay, window, coordinates, smoothing and effective sample size."""

from __future__ import annotations

from collections import deque
from math import inf

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, place, replay
from spc_sglang.placement.histogram import (
    RELATIVE_BINS,
    Coordinate,
    ExponentialHistogram,
    Histogram,
    PlainHistogram,
    WindowHistogram,
    effective_samples,
    mix_uniform,
    smooth,
)


def probabilities(weights: OverlapWeights) -> np.ndarray:
    return weights.dense() / weights.total


def test_exponential_weights_equal_the_definition() -> None:
    """gamma^age for each sample, across several renormalisations (gamma = 0.5)."""
    rng = np.random.default_rng(91)
    for gamma in (0.5, 0.9, 0.99):
        learner, seen = ExponentialHistogram(gamma), []
        for _ in range(1500):
            seen.append(int(rng.integers(1, 21)))
            learner.observe(seen[-1], 20)
        ages = np.arange(len(seen))[::-1]
        expected = np.bincount(seen, weights=gamma**ages, minlength=21)[1:]
        np.testing.assert_allclose(
            probabilities(learner.weights(20)), expected / expected.sum(), atol=1e-8
        )


def test_effective_sample_size() -> None:
    """199 at gamma = 0.99; weights below 1e-9 of the newest after 2,062 more observations."""
    assert effective_samples(0.99) == pytest.approx(199)
    learner = ExponentialHistogram(0.99)
    for _ in range(3000):
        learner.observe(3, 10)
    assert learner.effective_samples == pytest.approx(199)
    assert 0.99**2062 < 1e-9 < 0.99**2061
    learner.observe(5, 10)
    for _ in range(2061):
        learner.observe(3, 10)
    assert 5 in learner.weights(10).depths
    learner.observe(3, 10)
    assert 5 not in learner.weights(10).depths


def test_window_forgets_exactly() -> None:
    """Always the counts of the last 50 samples."""
    rng = np.random.default_rng(92)
    learner, recent = WindowHistogram(50), deque(maxlen=50)
    for _ in range(300):
        depth = int(rng.integers(1, 9))
        learner.observe(depth, 8)
        recent.append(depth)
        expected = np.bincount(recent, minlength=9)[1:]
        assert learner.weights(8).dense().tolist() == expected.tolist()
        assert learner.effective_samples == len(recent)


@pytest.mark.parametrize("make", [PlainHistogram, lambda c: WindowHistogram(100, c)])
def test_coordinates_carry_to_other_lengths(make: type[PlainHistogram]) -> None:
    """An overlap 10 tokens before the end of 100 is at 90, 10 from the end, and at 90 %."""
    expected = {Coordinate.ABSOLUTE: 90, Coordinate.FROM_END: 190, Coordinate.RELATIVE: 180}
    for coordinate, depth in expected.items():
        learner: Histogram = make(coordinate)
        learner.observe(90, 100)
        assert learner.weights(100).depths.tolist() == [90]
        assert abs(int(learner.weights(200).depths[0]) - depth) <= (
            1 if coordinate is Coordinate.RELATIVE else 0
        )


def test_relative_cells_map_to_depths_that_serve_the_overlap() -> None:
    """Back at the same length: exact up to 1024 tokens, never deeper beyond."""
    for length in (1, 7, 1000, 1024, 5000):
        for depth in range(1, length + 1, max(1, length // 200)):
            back = Coordinate.RELATIVE.depth(Coordinate.RELATIVE.key(depth, length), length)
            assert 1 <= back <= depth
            assert depth - back <= max(0, length // RELATIVE_BINS), (length, depth, back)
            if length <= RELATIVE_BINS:
                assert back == depth


def test_cells_outside_an_entry_are_dropped() -> None:
    """A short entry sees only what fits; nothing at all is an error that says so."""
    learner = PlainHistogram()
    learner.observe(90, 100)
    learner.observe(5, 100)
    assert learner.weights(50).depths.tolist() == [5]
    with pytest.raises(ValueError, match=r"1\.\.4"):
        learner.weights(4)
    with pytest.raises(ValueError, match="0 observed"):
        ExponentialHistogram().weights(10)


def test_misses_and_bad_parameters_are_refused() -> None:
    for depth, length in ((0, 10), (-1, 10), (11, 10)):
        with pytest.raises(ValueError, match=f"depth {depth} "):
            PlainHistogram().observe(depth, length)
    for gamma in (0.0, 1.0, -0.5, inf):
        with pytest.raises(ValueError, match=f"gamma {gamma}"):
            ExponentialHistogram(gamma)
    with pytest.raises(ValueError, match="window 0"):
        WindowHistogram(0)
    with pytest.raises(ValueError, match="sideways"):
        PlainHistogram("sideways")
    law = OverlapWeights.from_samples([2, 9])
    for width in (0, 10):
        with pytest.raises(ValueError, match=f"bandwidth {width}"):
            smooth(law, width)
    with pytest.raises(ValueError, match=r"share 1\.5"):
        mix_uniform(law, 1.5)


def test_smoothing_is_the_reflected_triangle() -> None:
    """Against the naive kernel; total kept, width 1 changes nothing."""
    rng = np.random.default_rng(93)
    for _ in range(50):
        dense = rng.random(int(rng.integers(1, 30)))
        law = OverlapWeights.from_dense(dense)
        width = int(rng.integers(1, dense.size + 1))
        expected = np.zeros(dense.size)
        for i, weight in enumerate(dense):
            for shift in range(-width + 1, width):
                j = i + shift
                j = -1 - j if j < 0 else 2 * dense.size - 1 - j if j >= dense.size else j
                expected[j] += weight * (width - abs(shift)) / width**2
        np.testing.assert_allclose(smooth(law, width).dense(), expected, atol=1e-12)
        assert smooth(law, width).total == pytest.approx(law.total)
    np.testing.assert_allclose(smooth(law, 1).dense(), law.dense(), atol=1e-12)


def test_uniform_mixture() -> None:
    law = OverlapWeights([2, 4], [3.0, 1.0])
    assert mix_uniform(law, 0.0).dense().tolist() == [0, 3, 0, 1]
    assert mix_uniform(law, 1.0).dense().tolist() == [1, 1, 1, 1]
    assert mix_uniform(law, 0.5).dense().tolist() == [0.5, 2, 0.5, 1]


def test_smoothing_helps_when_the_budget_is_large_for_the_sample() -> None:
    """Two humps, N = 2000, 199 samples, M = 64: less true replay after smoothing."""
    rng = np.random.default_rng(94)
    t = np.arange(1, 2001)
    density = np.exp(-(((t - 500) / 120) ** 2) / 2) + np.exp(-(((t - 1400) / 200) ** 2) / 2)
    true = OverlapWeights.from_dense(density / density.sum())
    raw, smoothed = [], []
    for _ in range(10):
        seen = OverlapWeights.from_samples(rng.choice(t, 199, p=density / density.sum()), 2000)
        raw.append(replay(true, place(seen, 64).depths))
        smoothed.append(replay(true, place(smooth(seen, 40), 64).depths))
    assert np.mean(smoothed) < 0.9 * np.mean(raw), (np.mean(raw), np.mean(smoothed))
