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
breakpoint dropped on one side is skipped when the other side meets it. For a leaf all of this has
a closed form, F_v(x) = min(p_v (d_v - x), price), which its parent adds directly.
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

    def push(self, at: float, node: int) -> None:
        """A breakpoint at `at`, the threshold of `node`."""
        heappush(self.shallow_first, (at, node))
        heappush(self.deep_first, (-at, node))


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
        upwards = _Pass(self._tree, self._children, price)
        for node in range(self._tree.size - 1, 0, -1):
            if self._children[node]:
                upwards.visit(node)
            else:
                upwards.visit_leaf(node)
        return upwards.threshold


class _Pass:
    """One upward pass: H_v and F_v of every node, children before parents."""

    def __init__(self, tree: PrefixTree, children: list[list[int]], price: float) -> None:
        self._depths = tree.depths
        self._weights = tree.weights
        self._children = children
        self._price = price
        self.threshold = [0.0] * tree.size
        # slope of F_v just beyond thr_v; 0 once the breakpoint is gone
        self._jump = [0.0] * tree.size
        # F_v of inner nodes whose parent has not been visited
        self._below: dict[int, _Piecewise] = {}

    def visit_leaf(self, node: int) -> None:
        """H_v(x) = p_v (d_v - x) reaches the price at thr_v = d_v - price / p_v."""
        weight, depth = self._weights[node], self._depths[node]
        if weight * depth > self._price:
            self.threshold[node] = depth - self._price / weight

    def visit(self, node: int) -> None:
        """From the children's F to H_v, thr_v and F_v."""
        function = self._sum_of_children(node)
        depth, weight = self._depths[node], self._weights[node]
        function.value_root += weight * depth
        function.slope_root += weight
        function.slope_right += weight
        with_checkpoint = self._price + function.value_right
        if function.value_root > with_checkpoint:
            at = min(self._walk_down_to(function, with_checkpoint), depth)
            self.threshold[node] = at
            self._jump[node] = function.slope_root
            function.slope_root = 0.0
            function.value_root = with_checkpoint
            function.push(at, node)
        self._below[node] = function

    def _sum_of_children(self, node: int) -> _Piecewise:
        """sum_c F_c on [0, d_v]: each child cut down to d_v, then added up."""
        depth = self._depths[node]
        total: _Piecewise | None = None
        leaves = []
        for child in self._children[node]:
            if not self._children[child]:
                leaves.append(child)
                continue
            function = self._below.pop(child)
            self._cut_right(function, self._depths[child], depth)
            total = function if total is None else _add(total, function)
        total = total or _Piecewise()
        for leaf in leaves:
            self._add_leaf(total, leaf, depth)
        return total

    def _add_leaf(self, total: _Piecewise, leaf: int, right: int) -> None:
        """Add min(p (d - x), price) on [0, right], with the kink at the leaf's threshold."""
        weight, depth, at = self._weights[leaf], self._depths[leaf], self.threshold[leaf]
        if at >= right:
            total.value_root += self._price
            total.value_right += self._price
            return
        total.value_right += weight * (depth - right)
        total.slope_right += weight
        if at > 0.0:
            total.value_root += self._price
            self._jump[leaf] = weight
            total.push(at, leaf)
        else:
            total.value_root += weight * depth
            total.slope_root += weight

    def _cut_right(self, function: _Piecewise, right: float, new_right: float) -> None:
        """Shrink the domain: climb from `right` to `new_right`, expiring breakpoints between."""
        position, value, slope = right, function.value_right, function.slope_right
        heap = function.deep_first
        while heap and -heap[0][0] >= new_right:
            negative, node = heappop(heap)
            if self._jump[node]:
                value += slope * (position + negative)
                position = -negative
                slope -= self._jump[node]
                self._jump[node] = 0.0
        function.value_right = value + slope * (position - new_right)
        function.slope_right = slope

    def _walk_down_to(self, function: _Piecewise, target: float) -> float:
        """The x at which the function has fallen to `target`; breakpoints before it are dropped.

        Leaves `slope_root` as the slope just beyond x.
        """
        position, value, slope = 0.0, function.value_root, function.slope_root
        heap = function.shallow_first
        while heap:
            breakpoint_at, node = heap[0]
            if self._jump[node]:
                value_there = value - slope * (breakpoint_at - position)
                if value_there <= target:
                    break
                position, value = breakpoint_at, value_there
                slope += self._jump[node]
                self._jump[node] = 0.0
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
