"""What other engines evict: `Retention` with another score, least first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spc_sglang.planning.live_states import Scores
from spc_sglang.planning.matched_path import Admitted
from spc_sglang.planning.node import Kind, Node
from spc_sglang.planning.retention import Retention


class Lru(Retention):
    """Least recently made or resumed from; only the state that was used is refreshed."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots, "lru")


class Fifo(Lru):
    """Oldest first, used or not."""

    def scores(self) -> Scores:
        return self.live.order[: len(self)].astype(np.float64)


class EntryLru(Lru):
    """LRU over entries: the states one request left stand and fall together."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._entry_of: dict[Node, int] = {}
        self._entries: dict[int, dict[Node, None]] = {}

    def admitted(self, matched: Node | None, restored: Node | None) -> Admitted:
        told = super().admitted(matched, restored)
        if restored is not None:
            for node in self._entries[self._entry_of[restored]]:
                assert node.checkpoint is not None
                self.live.last_use[node.checkpoint.slot] = self.now
        return told

    def inserted(self, node: Node, kind: Kind) -> None:
        super().inserted(node, kind)
        self._entry_of[node] = self.now
        self._entries.setdefault(self.now, {})[node] = None

    def evicted(self, node: Node, *, watch: bool = True) -> None:
        super().evicted(node, watch=watch)
        entry = self._entry_of.pop(node)
        del self._entries[entry][node]
        if not self._entries[entry]:
            del self._entries[entry]


class PathCapped(Lru):
    """SGLang's cap: beyond `per_path` states on one path the shallowest go; LRU otherwise."""

    def __init__(self, slots: int, per_path: int) -> None:
        super().__init__(slots)
        self.per_path = per_path

    def inserted(self, node: Node, kind: Kind) -> None:
        super().inserted(node, kind)
        on_path = [node]
        while (above := on_path[-1].live_ancestor()) is not None:
            on_path.append(above)
        for shallow in on_path[self.per_path :]:
            self.evicted(shallow, watch=False)


class SegmentLength(Retention):
    """Replay length to the nearest state above, weighted 0.85, and recency, 0.15."""

    guarded = False
    weight = 0.85

    def scores(self) -> Scores:
        live = len(self)
        return self.weight * _scaled(self.live.gap[:live]) + (1.0 - self.weight) * _scaled(
            self.live.last_use[:live]
        )


class Marconi(Retention):
    """Recency plus alpha times FLOPs saved per byte; only nodes with at most one child go.

    All states have equal bytes, so FLOPs per byte is the recomputed length; both terms are scaled
    to 0..1 over the pool.
    """

    guarded = False

    def __init__(self, slots: int, alpha: float) -> None:
        super().__init__(slots)
        self.alpha = alpha

    def scores(self) -> Scores:
        live = len(self)
        score = _scaled(self.live.last_use[:live]) + self.alpha * _scaled(self.live.gap[:live])
        branching = np.fromiter(
            (len(checkpoint.node.children) > 1 for checkpoint in self.live.checkpoints),
            np.bool_,
            live,
        )
        return score + 1e6 * branching


def _scaled(values: NDArray[np.float64]) -> Scores:
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros(values.size)
