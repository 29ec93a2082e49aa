"""Which build of the sweep runs: plain Python always, compiled once `warm_up` has been called."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spc_sglang.placement.reduction import Reduced
from spc_sglang.placement.sweep import sweep, walk_back
from spc_sglang.placement.weights import IntArray

_compiled: Callable[..., None] | None = None


def warm_up() -> bool:
    """Compile (or load from Numba's cache) the sweep; True when the compiled one is in use.

    Call it at start-up. It is the only place that imports Numba, so no request ever waits for a
    compiler; without Numba it returns False and the plain sweep goes on giving the same
    checkpoints.
    """
    global _compiled
    if _compiled is None:
        from spc_sglang.placement.compiled import compile_sweep

        _compiled = compile_sweep(sweep)
    return _compiled is not None


def is_compiled() -> bool:
    """Whether the compiled sweep is in use."""
    return _compiled is not None


def cool_down() -> None:
    """Back to the plain sweep, for tests and benchmarks that compare the two."""
    global _compiled
    _compiled = None


class Sweeper:
    """Buffers for sweeps over one reduced prefix: O(n) memory, whatever the number of sweeps."""

    def __init__(self, problem: Reduced) -> None:
        n = problem.size
        self._n = n
        self._run: Callable[..., None] = _compiled or sweep
        arrays = (problem.x, problem.P, problem.T, problem.base)
        if _compiled is not None:
            self._inputs: tuple[object, ...] = arrays
            self._row: object = np.zeros(n + 1)
            self._scratch: tuple[object, ...] = (np.zeros(n + 1, np.int64), np.zeros(n + 1))
            self._choice: object = np.zeros(n + 1, np.int64)
        else:
            self._inputs = tuple(array.tolist() for array in arrays)
            self._row = [0.0] * (n + 1)
            self._scratch = ([0] * (n + 1), [0.0] * (n + 1))
            self._choice = [0] * (n + 1)

    def penalised(self, price: float) -> IntArray:
        """Candidates that minimise cost + price * |C|, increasing indices in 1..n. O(n)."""
        self._run(*self._inputs, self._row, price, self._row, self._choice, *self._scratch)
        return np.asarray(walk_back(self._choice, self._n), dtype=np.int64)
