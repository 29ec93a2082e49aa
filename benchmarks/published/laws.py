"""Tables on the overlap law of each data set, taken as one prefix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.published.datasets import Dataset
from benchmarks.published.entries import Match, law_of, quantiles
from benchmarks.published.placements import PLACEMENTS, depths_for
from spc_sglang.placement import (
    OverlapWeights,
    block,
    mean_replay,
    place,
    random_spaced,
    reduction_factor,
    value_curve,
)
from spc_sglang.placement.histogram import ExponentialHistogram

LEARNT_DRAWS = 500
RANDOM_DRAWS = 100
GAMMA = 0.99


@dataclass(frozen=True)
class LawRow:
    """The overlap law of one data set."""

    dataset: str
    synthetic: bool
    requests: int
    hit_share: float
    prompt_tokens_p50: int
    overlap_p10: int
    overlap_p50: int
    overlap_p90: int
    overlap_max: int
    distinct_depths: int
    note: str


@dataclass(frozen=True)
class FactorRow:
    """Reduction factor E[T] / E[replay] on the law; None where nothing is replayed."""

    dataset: str
    placement: str
    budget: int
    checkpoints: int
    mean_replay_tokens: float
    factor: float | None


@dataclass(frozen=True)
class BlockRow:
    """How few checkpoints the DP needs to replay no more than block caching."""

    dataset: str
    block_tokens: int
    block_checkpoints: int
    dp_checkpoints: int


@dataclass(frozen=True)
class PromptRow:
    """Where each placement puts its checkpoints on one prompt, and what later requests lose."""

    dataset: str
    prompt_tokens: int
    requests: int
    overlap_p10: int
    overlap_p90: int
    placement: str
    depths: tuple[int, ...]
    mean_replay_tokens: float


def law_row(dataset: Dataset, found: Sequence[Match]) -> LawRow:
    """How deep requests match, and how often at all."""
    p10, p50, p90 = quantiles(found, (0.1, 0.5, 0.9))
    law = law_of(found)
    return LawRow(
        dataset=dataset.label,
        synthetic=dataset.synthetic,
        requests=len(dataset.prompts),
        hit_share=round(len(found) / len(dataset.prompts), 4),
        prompt_tokens_p50=int(np.median([len(prompt) for prompt in dataset.prompts])),
        overlap_p10=p10,
        overlap_p50=p50,
        overlap_p90=p90,
        overlap_max=law.length,
        distinct_depths=law.depths.size,
        note=dataset.note,
    )


def factor_rows(label: str, law: OverlapWeights, budgets: Sequence[int]) -> list[FactorRow]:
    """All placements on one prefix as long as the deepest overlap, which favours the fixed ones."""
    rows = []
    for name, placement in PLACEMENTS.items():
        if name == "random":
            continue
        for budget in budgets[:1] if placement.fixed_count else budgets:
            depths = depths_for(name, law, law.length, budget)
            rows.append(_factor_row(label, name, budget, law, depths))
    for budget in budgets:
        depths = place(learnt(law, seed=budget), budget).depths
        rows.append(_factor_row(label, "dp learnt", budget, law, depths))
        rows.append(_random_row(label, budget, law))
    return rows


def learnt(law: OverlapWeights, seed: int, draws: int = LEARNT_DRAWS) -> OverlapWeights:
    """What an exponential histogram makes of some draws from the law."""
    rng = np.random.default_rng(seed)
    histogram = ExponentialHistogram(GAMMA)
    for depth in rng.choice(law.depths, draws, p=law.weights / law.total):
        histogram.observe(int(depth), law.length)
    return histogram.weights(law.length)


def block_rows(label: str, law: OverlapWeights, sizes: Sequence[int]) -> list[BlockRow]:
    """For each block size that fits: checkpoints of block caching, and of the DP as good."""
    rows = []
    for size in sizes:
        depths = block(law.length, size)
        if not depths:
            continue
        curve = value_curve(law, len(depths))
        goal = mean_replay(law, depths) * law.total
        needed = int((curve <= goal * (1 + 1e-12) + 1e-9).argmax())
        rows.append(BlockRow(label, size, len(depths), needed))
    return rows


def prompt_rows(
    dataset: Dataset, found: Sequence[Match], budget: int, num_prompts: int
) -> list[PromptRow]:
    """The prompts that later requests matched most, with the pooled law and with their own."""
    by_entry: dict[int, list[Match]] = defaultdict(list)
    for match in found:
        by_entry[match.entry].append(match)
    pooled = law_of(found)
    rows = []
    for entry in sorted(by_entry, key=lambda e: (-len(by_entry[e]), e))[:num_prompts]:
        length = len(dataset.prompts[entry])
        own = law_of(by_entry[entry], length)
        p10, p90 = quantiles(by_entry[entry], (0.1, 0.9))
        choices = {
            "dp on its own law": depths_for("dp", own, length, budget),
            "dp on the pooled law": depths_for("dp", pooled, length, budget),
        }
        choices |= {name: depths_for(name, None, length, budget) for name in _SHOWN}
        for name, depths in choices.items():
            lost = round(mean_replay(own, depths), 1)
            about = (dataset.label, length, len(by_entry[entry]), p10, p90)
            rows.append(PromptRow(*about, name, depths, lost))
    return rows


_SHOWN = ("balanced", "block", "log")


def _random_row(label: str, budget: int, law: OverlapWeights) -> FactorRow:
    """Mean replay over some draws of the positions."""
    drawn = (random_spaced(law.length, budget, seed) for seed in range(RANDOM_DRAWS))
    lost = float(np.mean([mean_replay(law, depths) for depths in drawn]))
    count = min(budget, law.length)
    return FactorRow(
        label, "random", budget, count, round(lost, 3), round(law.mean_depth / lost, 3)
    )


def _factor_row(
    label: str, name: str, budget: int, law: OverlapWeights, depths: Sequence[int]
) -> FactorRow:
    lost, factor = mean_replay(law, depths), reduction_factor(law, depths)
    shown = round(factor, 3) if np.isfinite(factor) else None
    return FactorRow(label, name, budget, len(depths), round(lost, 3), shown)
