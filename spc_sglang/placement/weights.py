"""Overlap weights: how much traffic matches to each depth (the paper's p(t), unnormalised)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OverlapWeights:
    """`weights[i]` requests have their full-KV match end at `depths[i]` tokens from the root.

    Depths may come in any order and may repeat (their weights add up); after construction they
    are strictly increasing, `[n]` int64, and depths of weight zero are gone: no optimum ever
    checkpoints there (support lemma). Misses, p(0), are not part of the problem.

    `length` is N, the deepest position that exists; it defaults to the deepest depth given.

    Raises ValueError for empty input, weights that are negative, not finite or all zero, and
    depths that are not whole numbers in 1..N.
    """

    depths: IntArray
    weights: FloatArray
    length: int = 0

    def __init__(self, depths: ArrayLike, weights: ArrayLike, length: int | None = None) -> None:
        weight_array = _as_weights(weights)
        depth_array = as_depths(depths, "depth")
        if depth_array.shape != weight_array.shape:
            raise ValueError(
                f"{depth_array.size} depths but {weight_array.size} weights: give one each"
            )
        if depth_array.size == 0:
            raise ValueError("empty overlap weights: give at least one depth (got 0)")
        last = int(depth_array.max()) if length is None else int(length)
        check_range(depth_array, last, "depth")
        unique, group = np.unique(depth_array, return_inverse=True)
        summed = np.bincount(group, weights=weight_array, minlength=unique.size)
        keep = summed > 0.0
        if not keep.any():
            raise ValueError(
                f"all {weight_array.size} weights are 0: placement needs one positive weight"
            )
        object.__setattr__(self, "depths", _frozen(unique[keep]))
        object.__setattr__(self, "weights", _frozen(summed[keep]))
        object.__setattr__(self, "length", last)

    @classmethod
    def from_samples(cls, depths: ArrayLike, length: int | None = None) -> OverlapWeights:
        """Weight one for every observed overlap depth."""
        array = as_depths(depths, "overlap depth")
        return cls(array, np.ones(array.size), length)

    @classmethod
    def from_dense(cls, weights: ArrayLike) -> OverlapWeights:
        """`weights[t - 1]` is the weight of depth t; N is the number of weights."""
        array = _as_weights(weights)
        return cls(np.arange(1, array.size + 1), array, array.size)

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @property
    def mean_depth(self) -> float:
        """E[T], the mean overlap depth: what a hit costs without any checkpoint."""
        return float(self.weights @ self.depths) / self.total

    def scaled(self, factor: float) -> OverlapWeights:
        """The same law with every weight times `factor` (an entry's request rate, say)."""
        if not np.isfinite(factor) or factor <= 0:
            raise ValueError(f"factor {factor} is not a positive number: drop the entry instead")
        return OverlapWeights(self.depths, self.weights * factor, self.length)

    def dense(self) -> FloatArray:
        """`[N]`, entry t - 1 for depth t."""
        result = np.zeros(self.length)
        result[self.depths - 1] = self.weights
        return result


def as_depths(values: ArrayLike | Sequence[int], name: str) -> IntArray:
    """`values` as a one-dimensional int64 array, or ValueError for the first that is not whole."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise ValueError(f"{name}s have shape {array.shape}: give a flat list")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        as_float = array.astype(np.float64)
        bad = ~np.isfinite(as_float) | (as_float != np.floor(as_float))
        if bad.any():
            raise ValueError(f"{name} {array[bad][0]} is not a whole number of tokens: round it")
    return array.astype(np.int64)


def check_range(depths: IntArray, length: int, name: str) -> None:
    """ValueError naming the first depth outside 1..length."""
    bad = (depths < 1) | (depths > length)
    if bad.any():
        raise ValueError(
            f"{name} {depths[bad][0]} is outside 1..{length}: depths count tokens from the root "
            "(a miss, depth 0, never enters the placement)"
        )


def check_budget(budget: int) -> int:
    """`budget` if it is a whole number >= 0, else ValueError."""
    if budget != int(budget) or budget < 0:
        raise ValueError(f"budget {budget} is not a whole number >= 0: give a slot count")
    return int(budget)


def _as_weights(values: ArrayLike) -> FloatArray:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if array.ndim != 1:
        raise ValueError(f"weights have shape {array.shape}: give a flat list")
    bad = ~np.isfinite(array) | (array < 0.0)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"weight {array[where]} at index {where} is not a finite number >= 0: clean it first"
        )
    return array


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
