"""Distances between two overlap laws, each taken as a probability over depths."""

from __future__ import annotations

import numpy as np

from spc_sglang.placement.weights import FloatArray, OverlapWeights


def l1(one: OverlapWeights, other: OverlapWeights) -> float:
    """sum_t |p(t) - q(t)|, in 0..2."""
    return float(np.abs(_difference(one, other)).sum())


def total_variation(one: OverlapWeights, other: OverlapWeights) -> float:
    """Half of `l1`, in 0..1: the largest difference in the probability of any set of depths."""
    return 0.5 * l1(one, other)


def kolmogorov(one: OverlapWeights, other: OverlapWeights) -> float:
    """sup_t |F(t) - G(t)| of the two cumulative laws, in 0..1; never above total variation."""
    return float(np.abs(np.cumsum(_difference(one, other))).max())


def _difference(one: OverlapWeights, other: OverlapWeights) -> FloatArray:
    """p - q over the union of their depths."""
    depths = np.union1d(one.depths, other.depths)
    result = np.zeros(depths.size)
    result[np.searchsorted(depths, one.depths)] += one.weights / one.total
    result[np.searchsorted(depths, other.depths)] -= other.weights / other.total
    return result
