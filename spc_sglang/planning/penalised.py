"""The tree problem with a price per checkpoint, exact in O(n log^2 n).

F_v(x) = least cost of v's subtree, replay + price * checkpoints, when the nearest checkpoint above
v is at depth x:

    H_v(x) = p_v (d_v - x) + sum_c F_c(x)                      v holds no checkpoint
    F_v(x) = min( H_v(x), price + H_v(d_v) )                   ... or one, and serves itself

By induction H_v is concave, piecewise linear and falling in x, so F_v is flat up to a threshold
thr_v and equals H_v beyond it: v gets a checkpoint iff its anchor is shallower than thr_v, where
H_v(thr_v) = price + H_v(d_v). Going down once more with the anchors known yields the plan.

F_v is kept as what is needed at its two ends, plus its breakpoints (thresholds of v and of nodes
below it) in between:

* at x = 0: the value and the slope, walked upwards to find thr_v; breakpoints passed on the way
  lie in the flat part and are dropped;
* at x = d_v: the value and the slope, walked downwards to the parent's depth; breakpoints passed
  there lie below every anchor that is left, so they expire.

Each breakpoint is passed once from either side. Both sides are heaps, merged small into large; a
breakpoint dropped on one side is skipped when the other side meets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from spc_sglang.planning.tree import PrefixTree


@dataclass(slots=True)
class _Piecewise:
    """A falling concave function on [0, right]; slopes are stored as positive magnitudes."""

    value_root: float = 0.0
    slope_root: float = 0.0
    value_right: float = 0.0
    slope_right: float = 0.0
    shallow_first: list[tuple[float, int]] = field(default_factory=list)
    deep_first: list[tuple[float, int]] = field(default_factory=list)


class PenalisedTree:
    """Solves one tree for many prices; `solve(price)` is O(n log^2 n)."""

    def __init__(self, tree: PrefixTree) -> None:
        self._tree = tree
        self._children = tree.children()

    def solve(self, price: float) -> tuple[int, ...]:
        """Node ids that minimise replay + price * count, increasing. Ties take no checkpoint."""
        thresholds = self.thresholds(price)
        depths, parents = self._tree.depths, self._tree.parents
        resume = [0] * len(depths)
        chosen = []
        for node in range(1, len(depths)):
            anchor = resume[parents[node]]
            if anchor < thresholds[node]:
                chosen.append(node)
                anchor = depths[node]
            resume[node] = anchor
        return tuple(chosen)

    def thresholds(self, price: float) -> list[float]:
        """thr_v of every node; 0 or less where no anchor makes a checkpoint worth the price."""
        size = self._tree.size
        threshold = [0.0] * size
        jump = [0.0] * size  # slope of F_v just beyond thr_v; 0 once the breakpoint is gone
        below: list[_Piecewise | None] = [None] * size
        for node in range(size - 1, 0, -1):
            function = self._merge_children(node, below, jump)
            depth, weight = self._tree.depths[node], self._tree.weights[node]
            function.value_root += weight * depth
            function.slope_root += weight
            function.slope_right += weight
            if function.value_root > price + function.value_right:
                floor = price + function.value_right
                at = min(_raise_floor(function, floor, jump), depth)
                threshold[node] = at
                jump[node] = function.slope_root
                function.slope_root = 0.0
                function.value_root = floor
                heappush(function.shallow_first, (at, node))
                heappush(function.deep_first, (-at, node))
            below[node] = function
        return threshold

    def _merge_children(
        self, node: int, below: list[_Piecewise | None], jump: list[float]
    ) -> _Piecewise:
        """sum_c F_c on [0, d_v]: each child cut down to d_v, then added up."""
        depth = self._tree.depths[node]
        total: _Piecewise | None = None
        for child in self._children[node]:
            function = below[child]
            below[child] = None
            assert function is not None, "children come after their parents"
            _cut_right(function, self._tree.depths[child], depth, jump)
            total = function if total is None else _add(total, function)
        return _Piecewise() if total is None else total


def _cut_right(function: _Piecewise, right: float, new_right: float, jump: list[float]) -> None:
    """Shrink the domain: climb from `right` down to `new_right`, expiring what lies between."""
    position, value, slope = right, function.value_right, function.slope_right
    heap = function.deep_first
    while heap and -heap[0][0] >= new_right:
        negative, node = heappop(heap)
        if jump[node]:
            value += slope * (position + negative)
            position = -negative
            slope -= jump[node]
            jump[node] = 0.0
    function.value_right = value + slope * (position - new_right)
    function.slope_right = slope


def _raise_floor(function: _Piecewise, target: float, jump: list[float]) -> float:
    """The x at which the function has fallen to `target`; breakpoints before it are dropped.

    Leaves `slope_root` as the slope just beyond x.
    """
    position, value, slope = 0.0, function.value_root, function.slope_root
    heap = function.shallow_first
    while heap:
        breakpoint_at, node = heap[0]
        if jump[node]:
            value_there = value - slope * (breakpoint_at - position)
            if value_there <= target:
                break
            position, value = breakpoint_at, value_there
            slope += jump[node]
            jump[node] = 0.0
        heappop(heap)
    function.slope_root = slope
    # rounding can leave a trace of value above the target where the slope is gone
    return position + (value - target) / slope if slope > 0.0 else position


def _add(one: _Piecewise, other: _Piecewise) -> _Piecewise:
    """Their sum, in the larger of the two."""
    if len(one.shallow_first) < len(other.shallow_first):
        one, other = other, one
    one.value_root += other.value_root
    one.slope_root += other.slope_root
    one.value_right += other.value_right
    one.slope_right += other.slope_right
    for entry in other.shallow_first:
        heappush(one.shallow_first, entry)
    for entry in other.deep_first:
        heappush(one.deep_first, entry)
    return one
