"""The lemmas behind the solvers, as hypothesis properties on whole numbers (so exactly)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spc_sglang.placement import Cost, OverlapWeights, place, replay, value_curve
from spc_sglang.placement.grid import Grid
from spc_sglang.placement.price import penalised_solver, splice
from spc_sglang.placement.reduction import Reduced, reduce
from tests.placement.brute import enumerated_curve

# the same examples on every run, and no time limit on a busy machine
PROPERTY = settings(deadline=None, derandomize=True, max_examples=200)

LAWS = st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any)
LONG_LAWS = st.lists(st.integers(0, 9), min_size=1, max_size=60).filter(any)


def reduced(law: list[int]) -> Reduced:
    return reduce(OverlapWeights.from_dense(law), Grid(), Cost.tokens())


def segment(problem: Reduced, a: int, b: int) -> float:
    """Cost of candidates a..b-1 served by a (0: the root)."""
    before = problem.P[max(a - 1, 0)], problem.T[max(a - 1, 0)]
    return float(problem.T[b - 1] - before[1] - problem.x[a] * (problem.P[b - 1] - before[0]))


@PROPERTY
@given(LAWS, st.integers(0, 9))
def test_support_lemma(law: list[int], budget: int) -> None:
    """Only observed depths are needed: enumeration over all positions finds nothing better."""
    dense = np.asarray(law, dtype=float)
    observed = {t for t in range(1, dense.size + 1) if law[t - 1]}
    budget = min(budget, dense.size)
    assert enumerated_curve(dense, allowed=observed)[budget] == enumerated_curve(dense)[budget]


@PROPERTY
@given(LAWS, st.sets(st.integers(1, 9), min_size=1), st.integers(0, 9))
def test_grid_lemma(law: list[int], positions: set[int], budget: int) -> None:
    """Restricted optimum = free optimum of the floored law + the remainders."""
    dense = np.asarray(law, dtype=float)
    allowed = {a for a in positions if a <= dense.size} or {dense.size}
    floored, remainder = np.zeros(dense.size + 1), 0.0
    for t in range(1, dense.size + 1):
        at = max((a for a in allowed if a <= t), default=0)
        floored[at] += dense[t - 1]
        remainder += dense[t - 1] * (t - at)
    budget = min(budget, dense.size)
    free = enumerated_curve(floored[1:])[budget]
    assert enumerated_curve(dense, allowed=allowed)[budget] == free + remainder


@PROPERTY
@given(LONG_LAWS, st.data())
def test_segment_cost_is_monge(law: list[int], data: st.DataObject) -> None:
    """c(a, c) + c(b, d) <= c(a, d) + c(b, c) for a < b <= c < d: crossing beats nesting."""
    problem = reduced(law)
    if problem.size < 2:
        return
    a, b = sorted(data.draw(st.sets(st.integers(0, problem.size), min_size=2, max_size=2)))
    c, d = sorted(
        data.draw(
            st.sets(st.integers(b, problem.size + 1), min_size=2, max_size=2)
            if b < problem.size
            else st.just({b, b + 1})
        )
    )
    if c < 1:
        return
    crossing = segment(problem, a, c) + (segment(problem, b, d) if d > b else 0.0)
    nested = segment(problem, a, d) + (segment(problem, b, c) if c > b else 0.0)
    assert crossing <= nested


@PROPERTY
@given(LONG_LAWS, st.integers(1, 20))
def test_curve_is_convex_on_one_prefix(law: list[int], budget: int) -> None:
    """V(m - 1) - V(m) never rises."""
    curve = value_curve(OverlapWeights.from_dense(law), budget)
    assert (np.diff(curve, 2) >= 0).all()


@PROPERTY
@given(LONG_LAWS, st.integers(0, 400))
def test_penalised_optimum_is_the_best_over_all_budgets(law: list[int], price: int) -> None:
    """min_C cost + price |C| = min_m V(m) + price m."""
    problem = reduced(law)
    vertex = penalised_solver(problem)(float(price))
    curve = value_curve(OverlapWeights.from_dense(law), problem.size)
    assert vertex.cost + price * vertex.count == min(
        value + price * m for m, value in enumerate(curve)
    )


@PROPERTY
@given(LONG_LAWS)
def test_splice_reaches_every_count_between_two_optima(law: list[int]) -> None:
    """Any two optima of the same price splice to an optimum of each count between them."""
    problem = reduced(law)
    curve = value_curve(OverlapWeights.from_dense(law), problem.size)
    drops = -np.diff(curve)
    for m in range(1, drops.size):
        if drops[m] != drops[m - 1]:
            continue
        low = place_indices(problem, law, m - 1)
        high = place_indices(problem, law, m + 1)
        middle = splice(low, high, m, problem.size + 1)
        assert middle.size == m and (np.diff(middle) > 0).all()
        assert problem.cost_of(middle) == curve[m]


def place_indices(problem: Reduced, law: list[int], budget: int) -> np.ndarray:
    depths = place(OverlapWeights.from_dense(law), budget, method="hull").depths
    return np.searchsorted(problem.depths, depths)


@PROPERTY
@given(LONG_LAWS, st.integers(0, 12), st.floats(1e-6, 1e6))
def test_scaling_the_weights_scales_the_replay(law: list[int], budget: int, factor: float) -> None:
    """Rates multiply the weights and nothing else."""
    weights = OverlapWeights.from_dense(law)
    scaled = weights.scaled(factor)
    chosen = place(scaled, budget)
    best = place(weights, budget).replay
    assert np.isclose(replay(weights, chosen.depths), best, rtol=1e-12, atol=1e-12)
