"""How soon checkpoints of a class are asked for again: the learnt rates of the Pareto clock.

A checkpoint of age a (requests since it was made or last resumed from) is asked for by the next
request with probability alpha / (b + a). Then alpha has a closed form: hits over exposure, where
watching a checkpoint from age a0 to a1 is an exposure of ln((b + a1) / (b + a0)).
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from spc_sglang.planning.node import Kind

CLASSES = 34
LEAST_OFFSET, MOST_OFFSET = 4.0, 30.0
OFFSET_PER_SLOT = 0.25
HALVING_REQUESTS = 1024
PRIOR = 1.0


def clock_offset(slots: int) -> float:
    """b in requests: 30, and a quarter of the pool where that is less, but at least 4.

    In a pool that turns over within b requests, age would not count at all.
    """
    return min(MOST_OFFSET, max(LEAST_OFFSET, OFFSET_PER_SLOT * slots))


def class_of(kind: Kind, *, checkpoint_below: bool, passes: int) -> int:
    """0..31: (guess?, a live checkpoint below?, tail ? 0 : min(7, ceil log2 passes)); 32, 33: turn.

    `checkpoint_below` is the second part, also of the two classes of turns.
    """
    if kind is Kind.TURN:
        return 32 + checkpoint_below
    popularity = 0 if kind is Kind.TAIL else min(7, (max(passes, 1) - 1).bit_length())
    return 16 * kind.is_guess + 8 * checkpoint_below + popularity


class ClassRates:
    """Hits H and exposure X per class; `rates` is alpha = (H + 1) / (X + 1), `[34]` float64.

    `offset` is b, in requests.
    """

    def __init__(self, offset: float = MOST_OFFSET) -> None:
        self.offset = offset
        self.hits = [0.0] * CLASSES
        self.exposure = [0.0] * CLASSES
        self.rates: NDArray[np.float64] = np.ones(CLASSES)

    def watched(self, of_class: int, age_from: int, age_to: int) -> None:
        """A checkpoint of the class was not asked for between two ages, in requests."""
        self.exposure[of_class] += log((self.offset + age_to) / (self.offset + age_from))
        self._refresh(of_class)

    def hit(self, of_class: int) -> None:
        """A checkpoint of the class was asked for."""
        self.hits[of_class] += 1.0
        self._refresh(of_class)

    def halve(self) -> None:
        """Forget half of the evidence; every `HALVING_REQUESTS` requests."""
        self.load([0.5 * hits for hits in self.hits], [0.5 * seen for seen in self.exposure])

    def load(self, hits: list[float], exposure: list[float]) -> None:
        """Replace the evidence by a saved one; ValueError unless 32 finite values >= 0 each."""
        for name, values in (("hits", hits), ("exposure", exposure)):
            array = np.asarray(values, dtype=np.float64)
            if array.shape != (CLASSES,) or not np.isfinite(array).all() or (array < 0).any():
                raise ValueError(f"{name} {values!r}: need {CLASSES} finite numbers >= 0")
        self.hits, self.exposure = [float(h) for h in hits], [float(e) for e in exposure]
        for of_class in range(CLASSES):
            self._refresh(of_class)

    def _refresh(self, of_class: int) -> None:
        self.rates[of_class] = (self.hits[of_class] + PRIOR) / (self.exposure[of_class] + PRIOR)
