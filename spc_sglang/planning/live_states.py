"""The live checkpoints of one pool, and by slot what their values are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spc_sglang.planning.node import Checkpoint

Scores = np.ndarray[tuple[int], np.dtype[np.float64]]

_GROWTH = 2


class LiveStates:
    """Arrays over the slots in use, `[:len(self)]` of each; a slot is no slot of the real pool.

    gap: tokens to the nearest live checkpoint above; last_use: request count; of_class: of
    `class_rates`; order: of the inserts; touched: of `lru_guard`.
    """

    def __init__(self, slots: int) -> None:
        capacity = slots + 1
        self.checkpoints: list[Checkpoint] = []
        self.gap = np.zeros(capacity)
        self.last_use = np.zeros(capacity)
        self.of_class = np.zeros(capacity, dtype=np.int64)
        self.order = np.zeros(capacity, dtype=np.int64)
        self.touched = np.zeros(capacity, dtype=np.int64)
        self._values, self._ages = np.zeros(capacity), np.zeros(capacity)
        self._inserts = 0

    def __len__(self) -> int:
        return len(self.checkpoints)

    def append(self, checkpoint: Checkpoint, now: int) -> None:
        """Give a checkpoint the next slot; its gap and class are the caller's."""
        slot = checkpoint.slot = len(self.checkpoints)
        if slot == len(self.gap):
            for name in ("gap", "last_use", "of_class", "order", "touched", "_values", "_ages"):
                setattr(self, name, np.resize(getattr(self, name), _GROWTH * slot))
        self.checkpoints.append(checkpoint)
        self.last_use[slot] = now
        self.touched[slot] = checkpoint.node.touched
        self.order[slot] = self._inserts
        self._inserts += 1

    def remove(self, checkpoint: Checkpoint) -> None:
        """Take its slot, which the last one's checkpoint moves into."""
        slot, moved = checkpoint.slot, self.checkpoints.pop()
        checkpoint.slot = -1
        if moved is checkpoint:
            return
        last = moved.slot
        for array in (self.gap, self.last_use, self.of_class, self.order, self.touched):
            array[slot] = array[last]
        self.checkpoints[slot] = moved
        moved.slot = slot

    def values(self, rates: NDArray[np.float64], clock: float) -> Scores:
        """gap * rate[class] / (clock - last use), in memory that the next call uses again."""
        live = len(self)
        values, ages = self._values[:live], self._ages[:live]
        rates.take(self.of_class[:live], out=values, mode="clip")
        np.subtract(clock, self.last_use[:live], out=ages)
        values /= ages
        values *= self.gap[:live]
        return values

    def least(self, scores: Scores) -> tuple[int, float] | None:
        """The slot of least score and that score, of equal ones the one inserted first.

        None if all are infinite.
        """
        slot = int(scores.argmin())
        least = float(scores[slot])
        if least == np.inf:
            return None
        scores[slot] = np.inf
        others = np.minimum.reduce(scores)
        scores[slot] = least
        if others > least:  # the usual case: one pass more instead of collecting ties
            return slot, least
        ties = np.flatnonzero(scores == least)
        return int(ties[self.order[ties].argmin()]), least
