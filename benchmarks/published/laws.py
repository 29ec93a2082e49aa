"""Tables on the overlap law of each data set, taken as one prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.published.datasets import Dataset, Tokens
from benchmarks.published.entries import Match, common_tokens, law_of, quantiles
from benchmarks.published.placements import GRID_TOKENS, PLACEMENTS, depths_for
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
    dataset: Dataset, pooled: OverlapWeights, budget: int, num_prompts: int
) -> list[PromptRow]:
    """Prompts that most later requests share at least half of, by the pooled law and their own.

    Of the first quarter of the data set, so that enough requests follow, and no two of them share
    half. Requests that share less than one step of the kernels' grid are not counted.
    """
    rows = []
    for index, own in _most_shared(dataset.prompts, num_prompts):
        length = len(dataset.prompts[index])
        depths_of = {
            "dp on its own law": depths_for("dp", own, length, budget),
            "dp on the pooled law": depths_for("dp", pooled, length, budget),
        }
        depths_of |= {name: depths_for(name, None, length, budget) for name in _SHOWN}
        mass = np.cumsum(own.weights) / own.total
        p10, p90 = (int(own.depths[np.searchsorted(mass, share)]) for share in (0.1, 0.9))
        for name, depths in depths_of.items():
            lost = round(mean_replay(own, depths), 1)
            about = (dataset.label, length, int(own.total), p10, p90)
            rows.append(PromptRow(*about, name, depths, lost))
    return rows


_SHOWN = ("balanced", "block", "log")


def _most_shared(prompts: Sequence[Tokens], count: int) -> list[tuple[int, OverlapWeights]]:
    """Places of the prompts, and the law of what later requests share with each."""
    found = []
    for index in range(-(-len(prompts) // 4)):
        prompt = prompts[index]
        shared = np.array([common_tokens(later[:-1], prompt) for later in prompts[index + 1 :]])
        shared = shared[shared >= GRID_TOKENS]
        if shared.size:
            score = int((2 * shared >= len(prompt)).sum())
            found.append((score, index, OverlapWeights.from_samples(shared, len(prompt))))
    chosen: list[tuple[int, OverlapWeights]] = []
    for _, index, law in sorted(found, key=lambda entry: (-entry[0], entry[1])):
        half = len(prompts[index]) / 2
        if all(common_tokens(prompts[index], prompts[other]) < half for other, _ in chosen):
            chosen.append((index, law))
    return chosen[:count]


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
