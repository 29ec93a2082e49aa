"""The recurrence itself: one monotone-hull sweep shared by every solver.

For j = 1..n (x, P, T as in `Reduced`), with `prev` the row that the choice of s reads:

    row[j] = min( T_j,                                                     no checkpoint up to j
                  min_{1<=s<=j} prev[s-1] + price                          deepest checkpoint is s
                                + (T_j - T_{s-1}) - x_s (P_j - P_{s-1}) )

* Layered DP (the paper's O(NM) recurrence): prev = dp[m-1], row = dp[m], price = 0.
* Penalised DP: prev = row itself, `price` per checkpoint; then row[n] = min cost + price * |C|.

As lines in the query P_j:  row[j] = T_j + min_s ( b_s - x_s P_j ),
b_s = prev[s-1] + price + base_s,  base_s = x_s P_{s-1} - T_{s-1},  and b_0 = x_0 = 0.
Slopes -x_s fall with s and queries P_j rise with j, so a hull with one pointer gives O(n).

The function below is plain Python over indexable buffers: lists, and whole numbers of any size,
without Numba; float64 arrays with it. Both do the same operations in the same order, so both
choose the same checkpoints.

Rounding: b and T are as large as x_n P_n, so savings below about 1e-12 of that are noise. Weights
within six orders of magnitude gave optima exact to the last checkpoint against rational
arithmetic; next to weights a trillion times heavier a light depth may stay unserved.
"""

from __future__ import annotations

from typing import Any


def sweep(
    x: Any,
    P: Any,
    T: Any,
    base: Any,
    prev: Any,
    price: Any,
    row: Any,
    choice: Any,
    hull: Any,
    b: Any,
) -> None:
    """Fill `row[0..n]` and `choice[1..n]` (the s of each minimum, 0 for the root).

    `hull` and `b` are scratch of length n + 1. `prev` may be `row`. Ties keep the smallest s, so
    a checkpoint is used only where it strictly helps.
    """
    n = len(x) - 1
    row[0] = base[0]
    b[0] = base[0]
    hull[0] = 0
    first = 0
    last = 0
    for j in range(1, n + 1):
        # line j goes in before query j: a checkpoint at j serves j
        b_j = prev[j - 1] + price + base[j]
        x_j = x[j]
        while last > first:
            s1 = hull[last - 1]
            s2 = hull[last]
            # line s2 is nowhere lowest once j overtakes s1 no later than s2 does
            if (b_j - b[s1]) * (x[s2] - x[s1]) > (b[s2] - b[s1]) * (x_j - x[s1]):
                break
            last -= 1
        last += 1
        hull[last] = j
        b[j] = b_j
        q = P[j]
        s = hull[first]
        best = b[s] - x[s] * q
        while first < last:
            s2 = hull[first + 1]
            other = b[s2] - x[s2] * q
            if other >= best:
                break
            first += 1
            s = s2
            best = other
        row[j] = T[j] + best
        choice[j] = s


def walk_back(choice: Any, n: int) -> list[int]:
    """Chosen candidates, increasing: from j = n, take s = choice[j], go on with j = s - 1."""
    chosen = []
    j = n
    while j > 0 and choice[j] > 0:
        chosen.append(int(choice[j]))
        j = int(choice[j]) - 1
    chosen.reverse()
    return chosen
