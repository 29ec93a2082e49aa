"""Learning the overlap law from requests: plain, windowed and exponentially weighted histograms.

Distances between laws are in `distance`, what an estimate can cost in `regret`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from enum import StrEnum

import numpy as np

from spc_sglang.placement.weights import FloatArray, OverlapWeights

RELATIVE_BINS = 1024
# exponential weights: a renormalisation when the newest weight passes this, and what is dropped
_LARGEST_UNIT = 1e100
_NEGLIGIBLE = 1e-9


class Coordinate(StrEnum):
    """What is counted of an overlap of t tokens in an entry of N tokens."""

    ABSOLUTE = "absolute"
    """t itself: right when overlaps end at fixed places (a system prompt)."""
    FROM_END = "from_end"
    """N - t: right when overlaps end a little before the prompt does (a chat)."""
    RELATIVE = "relative"
    """t / N in 1024 steps: right when entries differ in length only."""

    def key(self, depth: int, length: int) -> int:
        """The histogram cell of an overlap."""
        if self is Coordinate.ABSOLUTE:
            return depth
        if self is Coordinate.FROM_END:
            return length - depth
        return depth * RELATIVE_BINS // length

    def depth(self, key: int, length: int) -> int:
        """The overlap depth of a cell in an entry of `length` tokens; outside 1..N if none."""
        if self is Coordinate.ABSOLUTE:
            return key
        if self is Coordinate.FROM_END:
            return length - key
        # the shallow edge of the cell: a checkpoint there serves all of it
        return max(1, -(-key * length // RELATIVE_BINS))


class Histogram(ABC):
    """Counts overlaps; `weights(length)` is the learnt law for an entry of that many tokens."""

    def __init__(self, coordinate: Coordinate | str = Coordinate.ABSOLUTE) -> None:
        self.coordinate = Coordinate(coordinate)

    def observe(self, depth: int, length: int) -> None:
        """Count a request whose overlap with an entry of `length` tokens ended at `depth`.

        Raises ValueError for a depth outside 1..length: a miss never enters the placement.
        """
        if not 1 <= depth <= length:
            raise ValueError(
                f"overlap depth {depth} is outside 1..{length}: do not observe misses (depth 0)"
            )
        self._count(self.coordinate.key(int(depth), int(length)))

    def weights(self, length: int) -> OverlapWeights:
        """The law mapped to depths 1..length; cells that fall outside are dropped.

        Raises ValueError when nothing was observed, or nothing falls inside.
        """
        cells = self._cells()
        mapped = [(self.coordinate.depth(key, length), w) for key, w in cells.items()]
        inside = [(depth, weight) for depth, weight in mapped if 1 <= depth <= length]
        if not inside:
            raise ValueError(
                f"none of {len(cells)} observed cells lies in 1..{length}: observe overlaps first"
            )
        depths, weight = zip(*inside, strict=True)
        return OverlapWeights(depths, weight, length)

    @property
    @abstractmethod
    def effective_samples(self) -> float:
        """Number of equally weighted samples with the same variance, (sum w)^2 / sum w^2."""

    @abstractmethod
    def _count(self, key: int) -> None: ...

    @abstractmethod
    def _cells(self) -> dict[int, float]: ...


class PlainHistogram(Histogram):
    """Every observation counts the same, for ever."""

    def __init__(self, coordinate: Coordinate | str = Coordinate.ABSOLUTE) -> None:
        super().__init__(coordinate)
        self._counts: Counter[int] = Counter()

    @property
    def effective_samples(self) -> float:
        return float(self._counts.total())

    def _count(self, key: int) -> None:
        self._counts[key] += 1

    def _cells(self) -> dict[int, float]:
        return {key: float(count) for key, count in self._counts.items() if count}


class WindowHistogram(PlainHistogram):
    """The last `window` observations count the same, older ones not at all."""

    def __init__(self, window: int, coordinate: Coordinate | str = Coordinate.ABSOLUTE) -> None:
        super().__init__(coordinate)
        if window < 1:
            raise ValueError(f"window {window} is below 1: give a number of samples to remember")
        self._recent: deque[int] = deque()
        self._window = window

    def _count(self, key: int) -> None:
        super()._count(key)
        self._recent.append(key)
        if len(self._recent) > self._window:
            self._counts[self._recent.popleft()] -= 1


class ExponentialHistogram(Histogram):
    """An observation k requests old counts gamma^k. O(1) per observation.

    Instead of shrinking the past, each new observation weighs 1 / gamma more than the one before;
    all is rescaled now and then, and cells below 1e-9 of the newest are dropped.
    """

    def __init__(
        self, gamma: float = 0.99, coordinate: Coordinate | str = Coordinate.ABSOLUTE
    ) -> None:
        super().__init__(coordinate)
        if not 0.0 < gamma < 1.0:
            raise ValueError(f"gamma {gamma} is outside (0, 1): use PlainHistogram for no decay")
        self.gamma = gamma
        self._unit = 1.0
        self._mass: dict[int, float] = {}
        self._total = 0.0
        self._squares = 0.0

    @property
    def effective_samples(self) -> float:
        return self._total**2 / self._squares if self._squares else 0.0

    def _count(self, key: int) -> None:
        self._unit /= self.gamma
        self._mass[key] = self._mass.get(key, 0.0) + self._unit
        self._total += self._unit
        self._squares += self._unit**2
        if self._unit > _LARGEST_UNIT:
            self._rescale()

    def _rescale(self) -> None:
        self._mass = self._cells()
        self._total /= self._unit
        self._squares /= self._unit**2
        self._unit = 1.0

    def _cells(self) -> dict[int, float]:
        """In units of the newest observation."""
        floor = _NEGLIGIBLE * self._unit
        return {key: mass / self._unit for key, mass in self._mass.items() if mass > floor}


def effective_samples(gamma: float) -> float:
    """(1 + gamma) / (1 - gamma), where an exponential histogram's sample size settles."""
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"gamma {gamma} is outside [0, 1): 0.99 remembers about 199 samples")
    return (1.0 + gamma) / (1.0 - gamma)


def smooth(weights: OverlapWeights, bandwidth: int) -> OverlapWeights:
    """Spread each weight over its neighbourhood: a triangle of half-width `bandwidth` tokens.

    Weight that would leave 1..N is reflected at the ends, so the total stays. O(N). Worth it when
    the budget exceeds about a tenth of the effective sample size.
    """
    if bandwidth < 1:
        raise ValueError(f"bandwidth {bandwidth} is below 1: give a number of tokens, 1 for none")
    if bandwidth > weights.length:
        raise ValueError(f"bandwidth {bandwidth} is above N = {weights.length}: use at most N")
    padded = np.pad(weights.dense(), bandwidth - 1, mode="symmetric")
    # a box over b cells twice is a triangle over 2b - 1
    smoothed = _box(_box(padded, bandwidth), bandwidth)
    return OverlapWeights.from_dense(np.maximum(smoothed, 0.0))


def mix_uniform(weights: OverlapWeights, share: float) -> OverlapWeights:
    """(1 - share) of the law plus `share` of the uniform law on 1..N, total unchanged."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share {share} is outside 0..1: 0.05 is usual")
    flat = share * weights.total / weights.length
    return OverlapWeights.from_dense((1.0 - share) * weights.dense() + flat)


def _box(values: FloatArray, width: int) -> FloatArray:
    sums = np.concatenate(([0.0], np.cumsum(values)))
    means: FloatArray = (sums[width:] - sums[:-width]) / width
    return means
