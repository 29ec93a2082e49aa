"""From overlap weights, a grid and a cost model to the bare recurrence: x, P, T and a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spc_sglang.placement.cost import Cost
from spc_sglang.placement.grid import Grid
from spc_sglang.placement.weights import FloatArray, IntArray, OverlapWeights


@dataclass(frozen=True, eq=False)
class Reduced:
    """One prefix, cut down to the n candidates that can matter; index 0 is the root.

    depths `[n + 1]`: where candidate s lies (0 for the root).
    x      `[n + 1]`: x_s = work saved by resuming from candidate s, rising from x_0 = 0.
    P      `[n + 1]`: P_j = w_1 + ... + w_j, the weight of the first j candidates.
    T      `[n + 1]`: T_j = w_1 x_1 + ... + w_j x_j, their cost from the root.
    base   `[n + 1]`: x_s P_{s-1} - T_{s-1}, the part of line s that no decision changes.
    floor: cost that no checkpoint set avoids (grid remainders, what is dearer to restore).

    Replay of checkpoints C = `floor` + sum_i w_i (x_i - x of the deepest candidate of C at or
    above i).
    """

    depths: IntArray
    x: FloatArray
    P: FloatArray
    T: FloatArray
    base: FloatArray
    floor: float

    @property
    def size(self) -> int:
        """n, the number of candidates: a budget above it cannot help."""
        return self.x.size - 1

    def cost_of(self, chosen: IntArray) -> float:
        """Replay without the floor of the candidates `chosen` (increasing indices in 1..n).

        Segment [s, e) costs (T_{e-1} - T_{s-1}) - x_s (P_{e-1} - P_{s-1}).
        """
        start = np.concatenate(([0], chosen))
        before = np.concatenate(([0], chosen - 1, [self.size]))
        work = np.diff(self.T[before]) - self.x[start] * np.diff(self.P[before])
        return float(work.sum())


def reduce(weights: OverlapWeights, grid: Grid, cost: Cost) -> Reduced:
    """Support lemma, grid lemma and cost model applied in one O(n) pass.

    Each overlap depth t moves to a(t), the deepest allowed depth at or above it; a(t) becomes the
    position x = max(0, G(a(t)) - G(0) - restore). Those at x = 0 gain from no checkpoint; equal x
    merge into one candidate, at the shallowest of their depths.
    """
    allowed = grid.floor(weights.depths)
    position = cost.resume_point(allowed)
    gains = position > 0.0
    x, first, group = np.unique(position[gains], return_index=True, return_inverse=True)
    w = np.bincount(group, weights=weights.weights[gains], minlength=x.size)
    x = np.concatenate(([0.0], x))
    P = np.concatenate(([0.0], np.cumsum(w)))
    T = np.concatenate(([0.0], np.cumsum(w * x[1:])))
    base = np.concatenate(([0.0], x[1:] * P[:-1] - T[:-1]))
    depths = np.concatenate(([0], allowed[gains][first]))
    total = float(weights.weights @ cost.above_root(weights.depths))
    return Reduced(depths, x, P, T, base, total - float(T[-1]))
