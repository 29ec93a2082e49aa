"""A cache of the last K prompts, each with its own M checkpoints: the paper's serving model.

A request matches the entry that shares most tokens with it (the newest on ties), resumes from that
entry's deepest checkpoint on the shared part, and becomes an entry itself. A miss is no overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.published.datasets import Tokens
from benchmarks.published.placements import Depths, depths_for
from spc_sglang.placement import OverlapWeights
from spc_sglang.placement.histogram import Histogram


class Match(NamedTuple):
    """What request number `request` shares with an earlier one."""

    request: int
    entry: int
    overlap_depth: int


class Result(NamedTuple):
    """Sums over the requests that matched something."""

    overlap_tokens: int
    replay_tokens: int
    checkpoints: int
    """Placed over all entries."""

    @property
    def factor(self) -> float | None:
        """E[T] / E[replay]; None if nothing was replayed."""
        return self.overlap_tokens / self.replay_tokens if self.replay_tokens else None


def common_tokens(first: Tokens, second: Tokens) -> int:
    """Leading tokens that both share. Looks at twice as many at a time."""
    size, begin, step = min(len(first), len(second)), 0, 256
    while begin < size:
        end = min(begin + step, size)
        differs = first[begin:end] != second[begin:end]
        if differs.any():
            return begin + int(differs.argmax())
        begin, step = end, 2 * step
    return size


def matches(prompts: Sequence[Tokens], num_entries: int) -> list[Match]:
    """The best match of each request among the `num_entries` before it; misses left out.

    An overlap is at most the prompt less its last token, which has to be computed.
    """
    found = []
    for request, prompt in enumerate(prompts):
        head = prompt[:-1]
        best = Match(request, -1, 0)
        for entry in range(request - 1, max(-1, request - 1 - num_entries), -1):
            shared = common_tokens(head, prompts[entry])
            if shared > best.overlap_depth:
                best = Match(request, entry, shared)
        if best.overlap_depth:
            found.append(best)
    return found


def law_of(found: Sequence[Match], length: int | None = None) -> OverlapWeights:
    """The empirical law of absolute overlap depths."""
    return OverlapWeights.from_samples([match.overlap_depth for match in found], length)


def known_law(name: str, law: OverlapWeights | None, budget: int) -> Callable[[int], Depths]:
    """Placement by one law for all, by the length of the entry."""
    kept: dict[int, Depths] = {}

    def place(length: int) -> Depths:
        if length not in kept:
            kept[length] = depths_for(name, law, length, budget)
        return kept[length]

    return place


def replay_known(
    lengths: Sequence[int], found: Sequence[Match], place: Callable[[int], Depths]
) -> Result:
    """Replay with placements that do not change over time."""
    lost = 0
    for match in found:
        lost += _lost(place(lengths[match.entry]), match.overlap_depth)
    overlap = sum(match.overlap_depth for match in found)
    return Result(overlap, lost, sum(len(place(length)) for length in lengths))


def replay_learnt(
    lengths: Sequence[int], found: Sequence[Match], law: Histogram, budget: int
) -> Result:
    """Replay with the exact DP on the law learnt so far when an entry is made.

    Balanced until the first overlap was seen. A request is observed before its own entry is
    placed, as in a server that plans the captures of a prefill after its match.
    """
    matched = {match.request: match for match in found}
    placed: list[Depths] = []
    lost = seen = 0
    for request, length in enumerate(lengths):
        match = matched.get(request)
        if match is not None:
            lost += _lost(placed[match.entry], match.overlap_depth)
            law.observe(match.overlap_depth, lengths[match.entry])
            seen += 1
        placed.append(depths_for("dp", _learnt(law, length) if seen else None, length, budget))
    overlap = sum(match.overlap_depth for match in found)
    return Result(overlap, lost, sum(map(len, placed)))


def _learnt(law: Histogram, length: int) -> OverlapWeights | None:
    try:
        return law.weights(length)
    except ValueError:  # all that was seen lies beyond this entry
        return None


def _lost(depths: Depths, overlap_depth: int) -> int:
    """Tokens from the deepest checkpoint at or above the overlap, else from the root."""
    index = bisect_right(depths, overlap_depth)
    return overlap_depth - (depths[index - 1] if index else 0)


def lengths_of(prompts: Sequence[Tokens]) -> list[int]:
    return [len(prompt) for prompt in prompts]


def quantiles(found: Sequence[Match], shares: Sequence[float]) -> list[int]:
    """Overlap depths below which the given shares of the overlaps lie."""
    depths = np.array([match.overlap_depth for match in found])
    return [int(q) for q in np.quantile(depths, shares, method="lower")]
