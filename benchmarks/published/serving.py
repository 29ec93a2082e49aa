"""Reduction factor against M with the last K entries, all placements, and who is on the front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.published.datasets import Dataset
from benchmarks.published.entries import (
    Match,
    Result,
    known_law,
    law_of,
    lengths_of,
    replay_known,
    replay_learnt,
)
from benchmarks.published.laws import GAMMA
from benchmarks.published.placements import BASELINES
from spc_sglang.placement.histogram import Coordinate, ExponentialHistogram
from spc_sglang.replay.pareto import undominated

LEARNT = {
    "dp learnt": Coordinate.ABSOLUTE,
    "dp learnt from the end": Coordinate.FROM_END,
}


@dataclass(frozen=True)
class EntryRow:
    """One placement with K entries and budget M, over all requests of a data set."""

    dataset: str
    entries: int
    budget: int
    placement: str
    overlap_tokens: int
    replay_tokens: int
    factor: float | None
    checkpoints_per_entry: float
    saved_tokens_per_checkpoint: float


def entry_rows(
    dataset: Dataset, found: Sequence[Match], entries: int, budgets: Sequence[int]
) -> list[EntryRow]:
    """All placements; `dp, law known` has seen all overlaps in advance, `sqrt` sets its own M."""
    lengths, law = lengths_of(dataset.prompts), law_of(found)
    results: list[tuple[int, str, Result]] = []
    for budget in budgets:
        known = known_law("dp", law, budget)
        results.append((budget, "dp, law known", replay_known(lengths, found, known)))
        for name, coordinate in LEARNT.items():
            histogram = ExponentialHistogram(GAMMA, coordinate)
            results.append((budget, name, replay_learnt(lengths, found, histogram, budget)))
        for name in BASELINES:
            place = known_law(name, None, budget)
            results.append((budget, name, replay_known(lengths, found, place)))
    place = known_law("sqrt", None, 1)
    results.append((0, "sqrt", replay_known(lengths, found, place)))
    return [_row(dataset, entries, *result) for result in results]


def front(rows: Iterable[EntryRow]) -> list[EntryRow]:
    """Rows that none equals or beats with as few checkpoints an entry, fewest first."""
    return undominated(rows, lambda r: r.checkpoints_per_entry, lambda r: -r.replay_tokens)


def _row(dataset: Dataset, entries: int, budget: int, name: str, result: Result) -> EntryRow:
    saved = result.overlap_tokens - result.replay_tokens
    factor = result.factor
    return EntryRow(
        dataset=dataset.label,
        entries=entries,
        budget=budget,
        placement=name,
        overlap_tokens=result.overlap_tokens,
        replay_tokens=result.replay_tokens,
        factor=None if factor is None else round(factor, 3),
        checkpoints_per_entry=round(result.checkpoints / len(dataset.prompts), 3),
        saved_tokens_per_checkpoint=round(saved / max(1, result.checkpoints), 1),
    )
