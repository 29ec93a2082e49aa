"""Cost models G(t): what computing the first t tokens costs, and what a restore costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from spc_sglang.placement.weights import FloatArray, IntArray


@dataclass(frozen=True)
class Cost:
    """A request that matches to t and resumes from l pays `G(t) - G(l) + restore`.

    `compute` is G, any non-decreasing function of an array of depths; `restore` is the fixed price
    of reading a state back, in the unit of G. A request resumes only when that is cheaper than
    starting from the root, so its cost is `G(t) - max(G(0), G(l) - restore)`: a restore cost
    moves the root to G(0) + restore and leaves the rest of the problem as it was.
    """

    compute: Callable[[FloatArray], FloatArray]
    restore: float = 0.0

    def __post_init__(self) -> None:
        if not np.isfinite(self.restore) or self.restore < 0:
            raise ValueError(f"restore cost {self.restore} is not a finite number >= 0")

    @classmethod
    def tokens(cls, restore: float = 0.0) -> Cost:
        """G(t) = t: the paper's replay tokens."""
        return cls(lambda t: t, restore)

    @classmethod
    def with_attention(cls, quadratic: float, restore: float = 0.0) -> Cost:
        """G(t) = t + quadratic * t^2 / 2: token t also attends to the t tokens above it."""
        if not np.isfinite(quadratic) or quadratic < 0:
            raise ValueError(f"quadratic {quadratic} is not a finite number >= 0: use 0 for none")
        return cls(lambda t: t + 0.5 * quadratic * t * t, restore)

    @classmethod
    def measured(cls, depths: ArrayLike, costs: ArrayLike, restore: float = 0.0) -> Cost:
        """G through measured points (and 0 at depth 0), straight between them and beyond."""
        x = np.concatenate(([0.0], np.asarray(depths, dtype=np.float64)))
        y = np.concatenate(([0.0], np.asarray(costs, dtype=np.float64)))
        if x.size < 2 or x.shape != y.shape:
            raise ValueError(f"{x.size - 1} depths and {y.size - 1} costs: give one cost a depth")
        if not (np.diff(x) > 0).all():
            raise ValueError(f"table depths {x[1:].tolist()} do not rise from above 0: sort them")
        _check_rising(x, y)
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return cls(lambda t: np.interp(t, x, y) + slope * np.maximum(t - x[-1], 0.0), restore)

    def above_root(self, depths: IntArray) -> FloatArray:
        """G(t) - G(0) for increasing depths t; ValueError where G is not finite or falls."""
        points = np.concatenate(([0.0], depths.astype(np.float64)))
        values = np.asarray(self.compute(points), dtype=np.float64)
        if values.shape != points.shape:
            raise ValueError(
                f"cost function returned shape {values.shape} for {points.shape}: map elementwise"
            )
        _check_rising(points, values)
        above: FloatArray = values[1:] - values[0]
        return above

    def resume_point(self, depths: IntArray) -> FloatArray:
        """max(0, G(l) - G(0) - restore): the work that resuming from each depth l saves."""
        return np.maximum(self.above_root(depths) - self.restore, 0.0)


def _check_rising(depths: FloatArray, values: FloatArray) -> None:
    if not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"cost {values[where]} at depth {depths[where]:g} is not a finite number")
    falls = np.flatnonzero(np.diff(values) < 0)
    if falls.size:
        i = int(falls[0])
        raise ValueError(
            f"cost falls from {values[i]:g} at depth {depths[i]:g} to {values[i + 1]:g} at depth "
            f"{depths[i + 1]:g}: G must not decrease, smooth the table first"
        )
