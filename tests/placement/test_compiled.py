"""The compiled sweep gives the plain sweep's checkpoints, and never compiles on a request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spc_sglang.placement import OverlapWeights, engine, place
from spc_sglang.placement.sweep import sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def numba() -> Iterator[Any]:
    """Numba, with the plain sweep in use again afterwards."""
    yield pytest.importorskip("numba", reason="the compiled sweep needs the `bench` extra")
    engine.cool_down()


def test_same_checkpoints_to_the_last_one(numba: Any) -> None:
    """500 laws, whole and float weights, ties included: equal tuples and equal replay."""
    rng = np.random.default_rng(21)
    cases = []
    for _ in range(500):
        n = int(rng.integers(1, 120))
        weights = rng.integers(1, 4, n).astype(float) if rng.random() < 0.5 else rng.random(n)
        depths = np.sort(rng.choice(3 * n, n, replace=False)) + 1
        cases.append((OverlapWeights(depths, weights), int(rng.integers(0, 20))))
    engine.cool_down()
    plain = [place(*case) for case in cases]
    assert engine.warm_up() and engine.is_compiled()
    for case, expected in zip(cases, plain, strict=True):
        assert place(*case) == expected, case


def test_place_alone_never_imports_numba() -> None:
    """Without `warm_up` the plain sweep runs and no compiler is loaded."""
    code = (
        "import sys; from spc_sglang.placement import OverlapWeights, place;"
        "place(OverlapWeights.from_samples([3, 9, 9, 14]), 2);"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_compiles_without_a_writable_cache(numba: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only install falls back to compiling in memory."""
    from spc_sglang.placement import compiled

    real = numba.njit
    asked: list[bool] = []

    def refusing(signature: str, *, cache: bool, nogil: bool) -> object:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(signature, nogil=nogil)

    monkeypatch.setattr(numba, "njit", refusing)
    assert compiled.compile_sweep(sweep) is not None
    assert asked == [True, False]


def test_without_numba_warm_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`warm_up` returns False and placing goes on."""
    from spc_sglang.placement import compiled

    engine.cool_down()
    monkeypatch.setattr(compiled, "numba", None)
    assert not engine.warm_up()
    assert place(OverlapWeights.from_samples([5, 5, 8]), 1).depths == (5,)
