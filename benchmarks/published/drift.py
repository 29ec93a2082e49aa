"""A law that moves: the sliding window against exponential weights, and the law known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sin

import numpy as np

from spc_sglang.placement import OverlapWeights, balanced, mean_replay, place
from spc_sglang.placement.histogram import (
    ExponentialHistogram,
    Histogram,
    PlainHistogram,
    WindowHistogram,
)

LENGTH, WIDTH, BUDGET = 2_000, 120.0, 4
# the centre of the law at request i of n
MOTIONS: dict[str, Callable[[int, int], float]] = {
    "still": lambda i, n: 600.0,
    "slow: 600 to 1,400 over the run": lambda i, n: 600.0 + 800.0 * i / n,
    "fast: back and forth in 200 requests": lambda i, n: 1000.0 + 400.0 * sin(2 * pi * i / 200),
    "jump at half": lambda i, n: 600.0 if i < n / 2 else 1_400.0,
}
# a window of 199 has as many effective samples as gamma = 0.99
ESTIMATORS: dict[str, Callable[[], Histogram]] = {
    "EW 0.99": lambda: ExponentialHistogram(0.99),
    "EW 0.95": lambda: ExponentialHistogram(0.95),
    "EW 0.9": lambda: ExponentialHistogram(0.9),
    "window 199": lambda: WindowHistogram(199),
    "window 39": lambda: WindowHistogram(39),
    "all samples": PlainHistogram,
}


@dataclass(frozen=True)
class DriftRow:
    """Mean replay under the law of the moment, over that of the DP that knows it."""

    motion: str
    estimator: str
    over_oracle: float


def gaussian(centre: float, width: float, length: int) -> OverlapWeights:
    """A discretised normal law on 1..length."""
    depths = np.arange(1, length + 1)
    weights = np.exp(-0.5 * ((depths - centre) / width) ** 2)
    keep = weights > 1e-9
    return OverlapWeights(depths[keep], weights[keep], length)


def drift_rows(num_requests: int, *, every: int = 20, seed: int = 0) -> list[DriftRow]:
    """Every `every` requests all place anew; the first tenth of the run is not counted."""
    rows = []
    for motion, centre in MOTIONS.items():
        rng = np.random.default_rng(seed)
        estimators = {name: make() for name, make in ESTIMATORS.items()}
        sums = dict.fromkeys([*estimators, "balanced"], 0.0)
        known = 0.0
        for request in range(num_requests):
            law = gaussian(centre(request, num_requests), WIDTH, LENGTH)
            if request % every == 0 and request >= num_requests / 10:
                known += place(law, BUDGET).mean_replay
                for name, histogram in estimators.items():
                    depths = place(histogram.weights(LENGTH), BUDGET).depths
                    sums[name] += mean_replay(law, depths)
                sums["balanced"] += mean_replay(law, balanced(LENGTH, BUDGET))
            depth = int(rng.choice(law.depths, p=law.weights / law.total))
            for histogram in estimators.values():
                histogram.observe(depth, LENGTH)
        rows += [DriftRow(motion, name, round(total / known, 4)) for name, total in sums.items()]
    return rows
