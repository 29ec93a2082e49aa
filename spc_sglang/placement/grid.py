"""Where checkpoints may lie: every position, multiples of a step, or a given set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spc_sglang.placement.weights import IntArray, as_depths, check_range


@dataclass(frozen=True)
class Grid:
    """Allowed checkpoint depths A: offset, offset + step, ... or exactly `allowed`.

    The grid lemma turns the restricted problem into the free one: replace each overlap depth t by
    `floor(t) = max{a in A : a <= t}`; the remainders t - floor(t) are a constant nobody can save.
    """

    step: int = 1
    offset: int = 0
    allowed: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"grid step {self.step} is below 1: give a number of tokens >= 1")
        if not 0 <= self.offset < self.step:
            raise ValueError(
                f"grid offset {self.offset} is outside 0..{self.step - 1}: take it modulo the step"
            )
        if self.allowed is not None and not self.allowed:
            raise ValueError("grid () allows no position: give at least one depth")

    def check(self, length: int) -> None:
        """ValueError when the grid has a position beyond N, or none within it."""
        if self.allowed is not None:
            check_range(np.asarray(self.allowed, dtype=np.int64), length, "grid position")
        elif self.step > length:
            raise ValueError(
                f"grid {self.step} is larger than N = {length}: no checkpoint fits, use grid <= N"
            )

    def floor(self, depths: IntArray) -> IntArray:
        """a(t) for each depth t; 0 (the root) where no allowed depth lies at or above it."""
        if self.allowed is not None:
            positions: IntArray = np.unique(np.asarray((0, *self.allowed), dtype=np.int64))
            at_or_above: IntArray = np.searchsorted(positions, depths, side="right") - 1
            return positions.take(at_or_above)
        if self.step == 1:
            return depths
        below: IntArray = depths - (depths - self.offset) % self.step
        return below.clip(min=0)


def as_grid(grid: int | Sequence[int] | Grid, length: int) -> Grid:
    """`grid` as a checked `Grid`: an int is a step, a sequence is the set of allowed depths."""
    if isinstance(grid, int | np.integer):
        result = Grid(step=int(grid))
    elif isinstance(grid, Grid):
        result = grid
    else:
        result = Grid(allowed=tuple(as_depths(grid, "grid position").tolist()))
    result.check(length)
    return result
