"""How soon checkpoints of a class are asked for again: the learnt rates of the Pareto clock.

A checkpoint of age a (requests since it was made or last resumed from) is asked for by the next
request with probability alpha / (b + a). Then alpha has a closed form: hits over exposure, where
watching a checkpoint from age a0 to a1 is an exposure of ln((b + a1) / (b + a0)).
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

CLASSES = 32
CLOCK_OFFSET = 30.0
HALVING_REQUESTS = 1024
PRIOR = 1.0


def class_of(*, guess: bool, tail: bool, checkpoint_below: bool, passes: int) -> int:
    """0..31: (guess?, a live checkpoint below?, tail ? 0 : min(7, ceil log2 passes))."""
    popularity = 0 if tail else min(7, (max(passes, 1) - 1).bit_length())
    return 16 * guess + 8 * checkpoint_below + popularity


class ClassRates:
    """Hits H and exposure X per class; `rates` is alpha = (H + 1) / (X + 1), `[32]` float64."""

    def __init__(self) -> None:
        self.hits = np.zeros(CLASSES)
        self.exposure = np.zeros(CLASSES)
        self.rates: NDArray[np.float64] = np.ones(CLASSES)

    def watched(self, of_class: int, age_from: int, age_to: int) -> None:
        """A checkpoint of the class was not asked for between two ages, in requests."""
        self.exposure[of_class] += log((CLOCK_OFFSET + age_to) / (CLOCK_OFFSET + age_from))
        self._refresh(of_class)

    def hit(self, of_class: int) -> None:
        """A checkpoint of the class was asked for."""
        self.hits[of_class] += 1.0
        self._refresh(of_class)

    def halve(self) -> None:
        """Forget half of the evidence; every `HALVING_REQUESTS` requests."""
        self.hits *= 0.5
        self.exposure *= 0.5
        self.rates = (self.hits + PRIOR) / (self.exposure + PRIOR)

    def load(self, hits: list[float], exposure: list[float]) -> None:
        """Replace the evidence by a saved one; ValueError unless 32 finite values >= 0 each."""
        for name, values in (("hits", hits), ("exposure", exposure)):
            array = np.asarray(values, dtype=np.float64)
            if array.shape != (CLASSES,) or not np.isfinite(array).all() or (array < 0).any():
                raise ValueError(f"{name} {values!r}: need {CLASSES} finite numbers >= 0")
        self.hits = np.asarray(hits, dtype=np.float64)
        self.exposure = np.asarray(exposure, dtype=np.float64)
        self.rates = (self.hits + PRIOR) / (self.exposure + PRIOR)

    def _refresh(self, of_class: int) -> None:
        self.rates[of_class] = (self.hits[of_class] + PRIOR) / (self.exposure[of_class] + PRIOR)
