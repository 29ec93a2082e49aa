"""Bad input raises ValueError and the message names the value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spc_sglang.placement import (
    Cost,
    Grid,
    OverlapWeights,
    balanced,
    block,
    place,
    replay,
    saw,
    sqrt_spaced,
    value_curve,
)

GOOD = OverlapWeights.from_samples([3, 5, 5, 9])

BAD: list[tuple[str, Callable[[], object]]] = [
    ("-2.0", lambda: OverlapWeights([1, 2], [1, -2])),
    ("nan", lambda: OverlapWeights.from_dense([1.0, float("nan")])),
    ("inf", lambda: OverlapWeights.from_dense([1.0, float("inf")])),
    ("depth 0", lambda: OverlapWeights([0, 2], [1, 1])),
    ("depth -1", lambda: OverlapWeights.from_samples([-1, 2])),
    ("11 is outside 1..10", lambda: OverlapWeights([11], [1], 10)),
    ("2.5", lambda: OverlapWeights([2.5], [1])),
    ("nan", lambda: OverlapWeights([float("nan")], [1])),
    ("2 depths but 3 weights", lambda: OverlapWeights([1, 2], [1, 2, 3])),
    ("empty", lambda: OverlapWeights([], [])),
    ("empty", lambda: OverlapWeights.from_samples([])),
    ("empty", lambda: OverlapWeights.from_dense([])),
    ("all 2 weights are 0", lambda: OverlapWeights.from_dense([0.0, 0.0])),
    ("(1, 2)", lambda: OverlapWeights([1, 2], [[1, 2]])),
    ("factor -1", lambda: GOOD.scaled(-1)),
    ("budget -1", lambda: place(GOOD, -1)),
    ("budget 1.5", lambda: place(GOOD, 1.5)),  # type: ignore[arg-type]
    ("budget -3", lambda: value_curve(GOOD, -3)),
    ("grid 10 is larger than N = 9", lambda: place(GOOD, 1, grid=10)),
    ("step 0", lambda: place(GOOD, 1, grid=0)),
    ("offset 4", lambda: Grid(4, 4)),
    ("grid position 12", lambda: place(GOOD, 1, grid=[4, 12])),
    ("allows no position", lambda: place(GOOD, 1, grid=[])),
    ("'fast'", lambda: place(GOOD, 1, method="fast")),
    ("falls from 5 at depth 5", lambda: place(GOOD, 1, cost=Cost(lambda t: np.minimum(t, 10 - t)))),
    ("falls from 4 at depth 3", lambda: Cost.measured([3, 5], [4, 2])),
    ("[5.0, 3.0]", lambda: Cost.measured([5, 3], [1, 2])),
    ("0 depths", lambda: Cost.measured([], [])),
    ("nan at depth 0", lambda: place(GOOD, 1, cost=Cost(lambda t: t * np.inf))),
    ("shape ()", lambda: place(GOOD, 1, cost=Cost(lambda t: t.sum()))),
    ("restore cost -1", lambda: Cost.tokens(-1)),
    ("quadratic -0.5", lambda: Cost.with_attention(-0.5)),
    ("checkpoint 10", lambda: replay(GOOD, [10])),
    ("checkpoint 0", lambda: replay(GOOD, [0, 3])),
    ("checkpoint 8", lambda: saw(7, [8])),
    ("N = 0", lambda: balanced(0, 2)),
    ("N = -4", lambda: sqrt_spaced(-4)),
    ("budget -1", lambda: balanced(5, -1)),
    ("block size 0", lambda: block(5, 0)),
]


@pytest.mark.parametrize(("named", "call"), BAD, ids=[f"{i}-{b[0]}" for i, b in enumerate(BAD)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_value_error_names_the_value(named: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert named in str(error.value)


def test_weights_are_read_only() -> None:
    """What was validated cannot change afterwards."""
    with pytest.raises(ValueError):
        GOOD.weights[0] = -1.0
    with pytest.raises(AttributeError):
        GOOD.length = 3  # type: ignore[misc]
