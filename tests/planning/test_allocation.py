"""One price per slot is jointly optimal over independent prefixes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, place, replay, value_curve
from spc_sglang.planning import allocate, path_removal_losses, split_equally


def random_entries(rng: np.random.Generator, count: int, longest: int) -> list[OverlapWeights]:
    entries = []
    for _ in range(count):
        dense = rng.integers(0, 6, int(rng.integers(1, longest + 1))).astype(float)
        dense[-1] += 1
        entries.append(OverlapWeights.from_dense(dense))
    return entries


def test_joint_optimum_over_all_ways_to_share() -> None:
    """500 cases of two or three entries, 6 total budgets each: equal to trying every share."""
    rng = np.random.default_rng(71)
    for _ in range(500):
        entries = random_entries(rng, int(rng.integers(1, 4)), 6)
        curves = [value_curve(entry, 6) for entry in entries]
        for budget in rng.choice(13, 6, replace=False).tolist():
            best = min(
                sum(curve[m] for curve, m in zip(curves, shares, strict=True))
                for shares in product(range(7), repeat=len(entries))
                if sum(shares) <= budget
            )
            got = allocate(entries, budget)
            case = ([e.dense().tolist() for e in entries], budget, got, best)
            assert got.replay == best, case
            assert sum(got.budgets) <= budget, case
            assert got.price >= 0.0, case


def test_equals_greedy_by_marginal_price_on_many_entries() -> None:
    """12 instances of 40 entries: the sum of the largest marginal savings over all entries."""
    rng = np.random.default_rng(72)
    for _ in range(12):
        entries = random_entries(rng, 40, 60)
        budget = int(rng.integers(20, 200))
        drops = np.concatenate([-np.diff(value_curve(entry, 60)) for entry in entries])
        start = sum(replay(entry, ()) for entry in entries)
        expected = start - np.sort(drops)[::-1][:budget].sum()
        assert allocate(entries, budget).replay == expected


def test_equal_split_costs_more_and_rates_matter() -> None:
    """Unequal traffic: the joint budget follows the rates, an equal split pays for it."""
    rng = np.random.default_rng(73)
    entries = [
        OverlapWeights.from_dense(rng.random(200)).scaled(float(rate))
        for rate in rng.pareto(1.0, 20) + 0.05
    ]
    joint = allocate(entries, 60)
    equal = sum(
        place(entry, share).replay
        for entry, share in zip(entries, split_equally(60, 20), strict=True)
    )
    assert joint.replay < 0.9 * equal
    busiest = max(range(20), key=lambda i: entries[i].total)
    assert joint.budgets[busiest] == max(joint.budgets)


def test_price_is_what_one_more_slot_saves() -> None:
    """V(M - 1) - V(M) >= price >= V(M) - V(M + 1) on the joint curve, 200 cases."""
    rng = np.random.default_rng(74)
    for _ in range(200):
        entries = random_entries(rng, 3, 12)
        budget = int(rng.integers(1, 25))
        below, at, above = (allocate(entries, budget + k).replay for k in (-1, 0, 1))
        price = allocate(entries, budget).price
        assert below - at + 1e-9 >= price >= at - above - 1e-9, (entries, budget, price)
        # with nothing to spend it is the best first checkpoint
        first = allocate(entries, 0)
        assert first.budgets == (0, 0, 0)
        assert first.price >= first.replay - allocate(entries, 1).replay - 1e-9


def test_grid_applies_to_every_entry() -> None:
    """All depths on the grid, and the floor counted."""
    rng = np.random.default_rng(75)
    entries = [OverlapWeights.from_dense(rng.random(300)) for _ in range(4)]
    got = allocate(entries, 12, grid=64)
    assert all(depth % 64 == 0 for p in got.placements for depth in p.depths)
    expected = sum(
        replay(entry, p.depths) for entry, p in zip(entries, got.placements, strict=True)
    )
    assert got.replay == pytest.approx(expected)


def test_greedy_removal_from_placed_positions_stays_close() -> None:
    """Dropping the smallest loss, one by one, from a placement of 24 down to 8: within 10 %."""
    rng = np.random.default_rng(76)
    for _ in range(20):
        weights = OverlapWeights.from_dense(rng.random(400) ** 3)
        kept = list(place(weights, 24).depths)
        while len(kept) > 8:
            kept.pop(int(path_removal_losses(weights, kept).argmin()))
        assert replay(weights, kept) <= 1.10 * place(weights, 8).replay


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        allocate([], 3)
    with pytest.raises(ValueError, match="budget -2"):
        allocate([OverlapWeights.from_samples([3])], -2)
    with pytest.raises(ValueError, match="grid 64"):
        allocate([OverlapWeights.from_samples([3])], 2, grid=64)
    with pytest.raises(ValueError, match="0 entries"):
        split_equally(3, 0)
