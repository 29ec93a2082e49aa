"""From observations to depths: which states of one prefill are worth a slot.

While tokens (restore, end] are recomputed, a request may leave

* a **tail** at the end of its prompt: what an append-only conversation resumes from;
* a **branch** at the match depth, when it resumed from less: the second request that shares
  this text shows that it is shared;
* **interior** positions of a schedule: `learned` (the exact DP on the from-end law), `ladder`
  (one fixed guess), `dp` (the exact DP on absolute depth), or a law-free spacing;
* **slack** positions, about eight a prompt and at most 2,048 tokens apart, while the pool has
  room.

Every schedule is a pure function of one `Extend` and of the observations so far. The seen and
the new text of a request are two entries of the tree's split (`split`), since the branch point
between them holds a checkpoint of its own: planned request by request, stars and combs get their
joint optimum (`tests/planning/test_live_split.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spc_sglang.placement import balanced, logarithmic, sqrt_spaced
from spc_sglang.planning.capture_policy import Extend, reachable
from spc_sglang.planning.interior import Segment, place_between
from spc_sglang.planning.node import Kind
from spc_sglang.planning.observation import BUCKET_TOKENS, Observations

LEAST_OVERLAP_RATE = 0.02
UNIFORM_SHARE = 0.05
UNIFORM_POINTS = 64
MOST_LEARNT_POINTS = 192
GUESS_TOKENS = 1024
PRICE_TOKENS = 128.0
SLACK_STEP_TOKENS = 2048
LEAST_SLACK_STEP_TOKENS = 256
SLACK_PARTS = 8


class Proposal(NamedTuple):
    """A depth to capture, in tokens, and why."""

    depth: int
    kind: Kind


class Interior(Protocol):
    """A schedule: depths inside (restore, end) of one request, in any order."""

    def depths(self, extend: Extend) -> Iterable[int]: ...


@dataclass(frozen=True, slots=True)
class Nothing:
    """No interior position."""

    def depths(self, extend: Extend) -> Iterable[int]:
        return ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """One guess a fixed distance before the prompt end, in text never seen before."""

    guess_tokens: int = GUESS_TOKENS

    def depths(self, extend: Extend) -> Iterable[int]:
        guess = (extend.prompt - 1) // BUCKET_TOKENS * BUCKET_TOKENS - self.guess_tokens
        return (guess,) if guess > max(extend.overlap_depth, extend.restore_depth) else ()


@dataclass(frozen=True, slots=True)
class Learned:
    """M positions by the exact DP on what was learnt.

    Between restore and overlap depth the weights are the tree's own: past requests that left
    the path there. Beyond, in new text, they are rho * f: f is the from-end law mixed with 5 %
    uniform, rho the overlaps that a request's own text meets. A position must be expected to save
    `price_tokens` over its life.
    """

    observations: Observations
    budget: int = 2
    price_tokens: float = PRICE_TOKENS

    def depths(self, extend: Extend) -> Iterable[int]:
        segments = [_seen_text(extend)] if extend.overlaps else []
        start, end = max(extend.overlap_depth, extend.restore_depth), extend.prompt - 1
        # no position can save more than all overlaps in new text times its length
        if _rate(self.observations) * (end - start) > self.price_tokens:
            segments.append(_new_text(self.observations, start, end))
        return place_between(segments, self.budget, self.price_tokens) if segments else ()


@dataclass(frozen=True, slots=True)
class AbsoluteDP:
    """The published recipe: M positions by the exact DP on the law of absolute overlap depths."""

    observations: Observations
    budget: int = 4

    def depths(self, extend: Extend) -> Iterable[int]:
        law = self.observations.absolute.points(MOST_LEARNT_POINTS)
        inside = [(depth, share) for depth, share in law if 0 < depth < extend.prompt]
        if not inside:
            return balanced(extend.prompt, self.budget)
        return place_between([_segment(0, inside)], self.budget)


@dataclass(frozen=True, slots=True)
class Balanced:
    """M positions whose gaps differ by at most one token, over the whole prompt."""

    budget: int

    def depths(self, extend: Extend) -> Iterable[int]:
        return balanced(extend.prompt, self.budget)


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """M positions at geometric depths."""

    budget: int

    def depths(self, extend: Extend) -> Iterable[int]:
        return logarithmic(extend.prompt, self.budget)


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Every sqrt(prompt) tokens."""

    def depths(self, extend: Extend) -> Iterable[int]:
        return sqrt_spaced(extend.prompt)


@dataclass(frozen=True, slots=True)
class Every:
    """Every `step` tokens of absolute depth."""

    step: int

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"step must be at least 1 token, got {self.step}")

    def depths(self, extend: Extend) -> Iterable[int]:
        first = (extend.restore_depth // self.step + 1) * self.step
        return range(first, extend.prompt, self.step)


@dataclass(frozen=True, slots=True)
class PlannedCaptures:
    """Ends, interior and slack of one forward as proposals; a `CapturePolicy`.

    `ends` is False for recipes that spend their whole budget on the schedule.
    """

    interior: Interior
    ends: bool = True
    slack_step: int | None = SLACK_STEP_TOKENS

    def proposals(self, extend: Extend) -> tuple[Proposal, ...]:
        """Reachable depths with their kinds, most valuable first."""
        wanted: dict[int, Kind] = {}
        for depth, kind in self._wanted(extend):
            for reached in reachable(extend, (depth,)):
                wanted.setdefault(reached, kind)
        return tuple(Proposal(depth, kind) for depth, kind in wanted.items())

    def plan(self, extend: Extend) -> tuple[int, ...]:
        return tuple(proposal.depth for proposal in self.proposals(extend))

    def _wanted(self, extend: Extend) -> Iterable[tuple[int, Kind]]:
        if self.ends:
            if extend.branch_depth is not None:
                yield extend.branch_depth, Kind.BRANCH
            yield extend.prompt - 1, Kind.TURN if extend.continues else Kind.TAIL
        for depth in self.interior.depths(extend):
            yield depth, Kind.GUESS if depth > extend.overlap_depth else Kind.BRANCH
        if extend.slack and self.slack_step is not None:
            for depth in Every(_slack_step(extend.prompt, self.slack_step)).depths(extend):
                yield depth, Kind.SLACK


def _slack_step(prompt: int, largest: int) -> int:
    """An eighth of the prompt on the bucket grid, at least 256 tokens and at most `largest`."""
    eighth = prompt // SLACK_PARTS // BUCKET_TOKENS * BUCKET_TOKENS
    return min(largest, max(LEAST_SLACK_STEP_TOKENS, eighth))


def _seen_text(extend: Extend) -> Segment:
    """Overlaps strictly between restore and overlap depth; the branch takes the latter."""
    inside = [
        (depth, heat)
        for depth, heat in extend.overlaps
        if extend.restore_depth < depth < extend.overlap_depth
    ]
    return _segment(extend.restore_depth, inside)


def _new_text(observations: Observations, start: int, end: int) -> Segment:
    """max(0.02, rho) * f on (start, end): f = 0.95 from-end law + 0.05 uniform, by bucket.

    What overlaps at the very end is the tail's and is left out.
    """
    last = end - BUCKET_TOKENS
    if last <= start:
        return _segment(start, [])
    points = min(UNIFORM_POINTS, (end - start) // BUCKET_TOKENS)
    rate = _rate(observations)
    even, learnt = rate * UNIFORM_SHARE / points, rate * (1.0 - UNIFORM_SHARE)
    weights = {start + part * (end - start) // points: even for part in range(1, points)}
    law = observations.from_end.points_between(end - last, end - start - 1, MOST_LEARNT_POINTS)
    for distance, share in law:
        weights[end - distance] = weights.get(end - distance, 0.0) + learnt * share
    return _segment(start, sorted(weights.items()))


def _segment(anchor: int, overlaps: Sequence[tuple[int, float]]) -> Segment:
    """The depths must increase."""
    return anchor, [depth for depth, _ in overlaps], [weight for _, weight in overlaps]


def _rate(observations: Observations) -> float:
    """Overlaps that a request's own new text is expected to meet."""
    return max(LEAST_OVERLAP_RATE, observations.overlap_rate)
