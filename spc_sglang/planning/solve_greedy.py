"""Adding and removing one checkpoint at a time on a tree, lazily.

Tokens saved by C, sum_v p_v max(depths of C on v's root path), is submodular: gains only shrink as
checkpoints are added, losses only grow as they are removed. So a stale gain is an upper bound and
a stale loss a lower bound, and a heap needs to refresh only its top.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from spc_sglang.planning.tree import PrefixTree


class CheckpointSet:
    """A set of checkpoints on a tree that knows what one more, or one less, is worth.

    `served[v]` is the weight of v's subtree that has no checkpoint between itself and v (v's own
    ignored): what a checkpoint at v serves, or would serve.
    """

    def __init__(self, tree: PrefixTree, checkpoints: Iterable[int] = ()) -> None:
        self._tree = tree
        self.chosen = set(tree.check_checkpoints(checkpoints))
        self._served = list(tree.weights)
        for node in range(tree.size - 1, 0, -1):
            if node not in self.chosen:
                self._served[tree.parents[node]] += self._served[node]

    def worth(self, node: int) -> float:
        """(d_v - depth of the nearest checkpoint above v) * weight served: gain or loss of v."""
        above = self._tree.parents[node]
        while above and above not in self.chosen:
            above = self._tree.parents[above]
        return (self._tree.depths[node] - self._tree.depths[above]) * self._served[node]

    def add(self, node: int) -> None:
        """Checkpoint `node`; the checkpoint above no longer serves its weight."""
        self._shift(node, -self._served[node])
        self.chosen.add(node)

    def remove(self, node: int) -> None:
        """Drop `node`; its weight goes back to the checkpoint above."""
        self._shift(node, self._served[node])
        self.chosen.remove(node)

    def _shift(self, node: int, weight: float) -> None:
        above = self._tree.parents[node]
        self._served[above] += weight
        while above and above not in self.chosen:
            above = self._tree.parents[above]
            self._served[above] += weight

    def fill(self, budget: int) -> None:
        """Add the checkpoint of largest gain until `budget` is reached or no gain is left.

        Ties take the smallest node id.
        """
        gains = [(-self.worth(v), v) for v in range(1, self._tree.size) if v not in self.chosen]
        heapify(gains)
        while gains and len(self.chosen) < budget:
            stale, node = heappop(gains)
            gain = self.worth(node)
            if gain < -stale:
                heappush(gains, (-gain, node))
            elif gain > 0.0:
                self.add(node)
            else:
                break

    def trim(self, budget: int) -> None:
        """Remove the checkpoint of smallest loss until `budget` is reached. Ties as in `fill`."""
        losses = [(self.worth(v), v) for v in self.chosen]
        heapify(losses)
        while len(self.chosen) > budget:
            stale, node = heappop(losses)
            loss = self.worth(node)
            if loss > stale:
                heappush(losses, (loss, node))
            else:
                self.remove(node)

    def best_gains(self, budget: int) -> float:
        """Sum of the `budget` largest gains: no plan of that size saves more on top of this one."""
        free = (v for v in range(1, self._tree.size) if v not in self.chosen)
        return sum(sorted(map(self.worth, free), reverse=True)[:budget])


def solve_greedy(tree: PrefixTree, budget: int) -> tuple[tuple[int, ...], float]:
    """Greedy addition from nothing: node ids and a bound on what any plan can still save.

    At least 1 - 1/e of the best saving (submodular); the worst ratio seen is 0.83. The bound is
    the sum of the `budget` largest remaining gains. About O(n log n + M * height).
    """
    state = CheckpointSet(tree)
    state.fill(budget)
    return tuple(sorted(state.chosen)), state.best_gains(budget)
