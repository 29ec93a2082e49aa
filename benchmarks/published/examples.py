"""Laws with known answers: two Gaussians, and three laws side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.published.laws import learnt
from spc_sglang.placement import OverlapWeights, balanced, mean_replay, place

TWO_GAUSSIANS_LENGTH, TWO_GAUSSIANS_BUDGET = 200, 6


@dataclass(frozen=True)
class ExampleRow:
    """Mean replay of balanced spacing and of the DP on one law."""

    law: str
    length: int
    budget: int
    balanced_tokens: float
    dp_tokens: float
    change_percent: float
    dp_depths: tuple[int, ...]


@dataclass(frozen=True)
class RegretRow:
    """What the DP loses that knows only some samples, mean over seeds, in percent of replay."""

    samples: int
    budget: int
    regret_percent: float


def two_gaussians(scale: int = 1) -> OverlapWeights:
    """0.6 N(50, 12) + 0.4 N(140, 15) on 1..200, all times `scale`."""
    depths = np.arange(1, TWO_GAUSSIANS_LENGTH * scale + 1)

    def density(centre: float, width: float) -> np.ndarray:
        return np.exp(-0.5 * ((depths / scale - centre) / width) ** 2) / width

    weights = 0.6 * density(50, 12) + 0.4 * density(140, 15)
    return OverlapWeights(depths, weights, depths.size)


def three_laws() -> dict[str, OverlapWeights]:
    """Flat, falling from the root, and one late hump; N = 1,000. Chosen here, none is published."""
    depths = np.arange(1, 1_001)
    return {
        "uniform": OverlapWeights(depths, np.ones(1_000)),
        "geometric, mean 150": OverlapWeights(depths, (1 - 1 / 150) ** depths),
        "late hump, N(850, 40)": OverlapWeights(depths, np.exp(-0.5 * ((depths - 850) / 40) ** 2)),
    }


def example_rows() -> list[ExampleRow]:
    rows = [_row("two Gaussians", two_gaussians(), TWO_GAUSSIANS_BUDGET)]
    return rows + [_row(name, law, 4) for name, law in three_laws().items()]


def regret_rows(samples: int, budgets: tuple[int, ...], seeds: int) -> list[RegretRow]:
    """The two Gaussians on 2,000 tokens, placed from exponential weights over `samples` draws."""
    law = two_gaussians(10)
    rows = []
    for budget in budgets:
        best = place(law, budget).mean_replay
        found = [
            mean_replay(law, place(learnt(law, seed, samples), budget).depths)
            for seed in range(seeds)
        ]
        percent = round(100 * (float(np.mean(found)) / best - 1), 2)
        rows.append(RegretRow(samples, budget, percent))
    return rows


def _row(name: str, law: OverlapWeights, budget: int) -> ExampleRow:
    even, best = mean_replay(law, balanced(law.length, budget)), place(law, budget)
    change = 100 * (best.mean_replay / even - 1)
    return ExampleRow(
        law=name,
        length=law.length,
        budget=budget,
        balanced_tokens=round(even, 3),
        dp_tokens=round(best.mean_replay, 3),
        change_percent=round(change, 2),
        dp_depths=best.depths,
    )
