"""From observations to depths: histogram, exact interior DP, and the modes."""

from __future__ import annotations

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, place
from spc_sglang.placement.evaluate import replay
from spc_sglang.planning import interior
from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.interior import place_between, savings_curve
from spc_sglang.planning.learned import (
    AbsoluteDP,
    Every,
    Ladder,
    Learned,
    Nothing,
    PlannedCaptures,
    Proposal,
)
from spc_sglang.planning.node import Kind
from spc_sglang.planning.observation import Admission, Observations, WeightedHistogram


def extend(prompt: int, *, overlap: int = 0, restore: int = 0, **rest: object) -> Extend:
    return Extend(
        prefix=restore,
        end=prompt,
        prompt=prompt,
        grid=64,
        overlap_depth=overlap,
        restore_depth=restore,
        **rest,  # type: ignore[arg-type]
    )


def test_histogram_weights_fall_by_gamma() -> None:
    """Two samples, gamma 0.5: weights 1/2 and 1, shares 1/3 and 2/3, by buckets of 64."""
    histogram = WeightedHistogram(0.5)
    histogram.add(100)
    histogram.add(640)
    depths, shares = histogram.law()
    assert depths.tolist() == [64, 640]
    assert shares.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_histogram_survives_rescaling_and_saving() -> None:
    """A hundred thousand samples later, and after a reload, the law is the same."""
    histogram = WeightedHistogram(0.99)
    for index in range(100_000):
        histogram.add(64 * (index % 7))
    other = WeightedHistogram(0.99)
    other.load(histogram.state())
    for mine, theirs in zip(histogram.law(), other.law(), strict=True):
        assert mine == pytest.approx(theirs)
    with pytest.raises(ValueError, match="-1"):
        other.load({"buckets": [-1], "weights": [1.0]})


def test_from_end_is_measured_in_the_owners_text_only() -> None:
    """No sample without a match, nor for an overlap that is not deeper than the owner's own."""
    assert Admission(1000, 400, 0, owner_prompt=900, owner_overlap=100).from_end == 496
    assert Admission(1000, 100, 0, owner_prompt=900, owner_overlap=100).from_end is None
    assert Admission(1000, 400, 0, owner_prompt=900, earlier_visits=1).from_end is None
    assert Admission(1000, 0, 0).from_end is None
    assert Admission(1000, 950, 0, owner_prompt=900).from_end == 0
    with pytest.raises(ValueError, match="950"):
        Admission(1000, 900, 950)


@pytest.mark.parametrize("most", [4, 100])
def test_points_between_are_those_of_the_whole_law(most: int) -> None:
    """Fewer and more buckets than `most`, one that has faded away, after every sample."""
    rng = np.random.default_rng(most)
    histogram = WeightedHistogram(gamma=0.5)
    assert histogram.points_between(0, 10_000, most) == []
    for tokens in [640, *rng.integers(0, 4096, 60).tolist()]:
        histogram.add(tokens)
        for first, last in ((0, 5000), (64, 1000), (65, 1023), (2000, 100)):
            inside = [(at, w) for at, w in histogram.points(most) if first <= at <= last]
            assert histogram.points_between(first, last, most) == inside


def test_overlap_rate_counts_overlaps_per_request() -> None:
    observations = Observations()
    observations.add(Admission(1000, 0, 0))
    observations.add(Admission(1000, 640, 0, owner_prompt=1000))
    assert observations.overlap_rate == pytest.approx(1 / 1.999)


@pytest.mark.parametrize("seed", range(200))
def test_interior_dp_is_the_exact_placement(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same saving as `placement.place` for every budget, on random weights; and by loops."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 2 * interior.FEW_DEPTHS))
    depths = np.sort(rng.choice(np.arange(1, 200), n, replace=False)).astype(np.int64)
    weights = rng.integers(1, 20, n).astype(np.float64)
    law = OverlapWeights(depths, weights)
    without = replay(law, ())
    curve = savings_curve((0, depths.tolist(), weights.tolist()), 4)
    monkeypatch.setattr(interior, "FEW_DEPTHS", 0 if n <= interior.FEW_DEPTHS else n)
    assert savings_curve((0, depths.tolist(), weights.tolist()), 4) == curve
    for budget, (saving, chosen) in enumerate(curve):
        assert saving == pytest.approx(without - place(law, budget).replay)
        assert saving == pytest.approx(without - replay(law, chosen))


@pytest.mark.parametrize("seed", range(50))
def test_a_price_ends_the_curve_where_the_whole_one_would(seed: int) -> None:
    """What is left out could not have been chosen: budgets 0 to 4, two segments, brute force."""
    rng = np.random.default_rng(seed)
    segments = []
    for anchor in (0, 200):
        depths = anchor + np.sort(rng.choice(np.arange(1, 200), 6, replace=False))
        segments.append((anchor, depths.tolist(), rng.integers(1, 20, 6).astype(float).tolist()))
    price = float(rng.integers(1, 2000))
    for budget in range(5):
        whole = [savings_curve(segment, budget) for segment in segments]
        worth = max(
            whole[0][first][0] + whole[1][second][0] - price * (first + second)
            for first in range(budget + 1)
            for second in range(budget + 1 - first)
        )
        chosen = place_between(segments, budget, price)
        saved = sum(_saved(segment, chosen) for segment in segments)
        assert saved - price * len(chosen) == pytest.approx(worth)


def _saved(segment: interior.Segment, chosen: tuple[int, ...]) -> float:
    """Weight times depth of the deepest chosen position at or below each overlap."""
    anchor, depths, weights = segment
    return sum(
        weight * max([at - anchor for at in chosen if anchor < at <= depth], default=0)
        for depth, weight in zip(depths, weights, strict=True)
    )


def test_budget_goes_to_the_segment_that_saves_most() -> None:
    """Two segments, one checkpoint each is best although the first alone could use two."""
    first = (0, [10, 20], [3.0, 1.0])
    second = (100, [150], [1.0])
    assert place_between([first, second], 1) == (150,)
    assert place_between([first, second], 2) == (10, 150)
    assert place_between([first, second], 3) == (10, 20, 150)
    assert place_between([first, second], 3, price=20.0) == (10, 150)
    assert place_between([first, second], 3, price=60.0) == ()
    with pytest.raises(ValueError, match="-1"):
        place_between([first], -1)


def test_learned_aims_at_the_distance_it_saw() -> None:
    """Overlaps 1,000 tokens before the end put a guess there, one bucket up to the grid."""
    observations = Observations()
    for _ in range(50):
        observations.add(Admission(8000, 3000, 0, owner_prompt=4000))
    planned = Learned(observations, 1).depths(extend(9001))
    assert list(planned) == [9000 - 1024]


def test_learned_uses_the_trees_own_weights_below_the_branch() -> None:
    """Heat between restore and overlap depth outweighs new text; the branch itself is given."""
    policy = PlannedCaptures(Learned(Observations(), 1), slack_step=None)
    found = policy.proposals(
        extend(4001, overlap=3008, restore=64, overlaps=((1024, 50.0), (2048, 0.1)))
    )
    assert found == (
        Proposal(3008, Kind.BRANCH),
        Proposal(4000 // 64 * 64, Kind.TAIL),
        Proposal(1024, Kind.BRANCH),
    )


def test_ladder_guesses_in_unseen_text_only() -> None:
    """1,024 tokens before the end, unless that was seen before."""
    assert list(Ladder().depths(extend(4097))) == [4096 - 1024]
    assert list(Ladder().depths(extend(4097, overlap=3072))) == []


def test_slack_fills_a_roomy_pool() -> None:
    """About eight while the pool has room, 256 to 2,048 tokens apart, after tail and branch."""
    policy = PlannedCaptures(Nothing())
    assert policy.plan(extend(1000)) == (960,)
    assert policy.plan(extend(1000, slack=True)) == (960, 256, 512, 768)
    assert policy.plan(extend(5000, slack=True)) == (4992, *range(576, 4992, 576))
    long = policy.proposals(extend(50_000, slack=True))
    assert [p.depth for p in long[1:]] == list(range(2048, 50_000, 2048))
    assert [p.kind for p in long] == [Kind.TAIL] + [Kind.SLACK] * 24


def test_chunked_prefill_captures_what_the_whole_would() -> None:
    """Each forward takes its own part of the request's plan."""
    policy = PlannedCaptures(Ladder(), slack_step=None)
    whole = policy.plan(extend(8193))
    parts = [
        policy.plan(Extend(prefix=a, end=b, prompt=8193, grid=64))
        for a, b in ((0, 4096), (4096, 8192), (8192, 8193))
    ]
    assert sorted(whole) == sorted(depth for part in parts for depth in part)


def test_absolute_dp_is_the_published_recipe() -> None:
    """M positions where overlaps were seen, balanced before anything was."""
    observations = Observations()
    recipe = AbsoluteDP(observations, 2)
    assert list(recipe.depths(extend(300))) == [101, 201]
    for depth in (640, 1280, 640, 1280):
        observations.add(Admission(5000, depth, 0, owner_prompt=4000))
    assert list(recipe.depths(extend(5000))) == [640, 1280]


def test_bad_steps_are_named() -> None:
    with pytest.raises(ValueError, match="0"):
        Every(0)
    with pytest.raises(ValueError, match=r"1\.5"):
        WeightedHistogram(1.5)
