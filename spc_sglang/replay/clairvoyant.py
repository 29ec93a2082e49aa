"""A contender that knows the future: a heuristic yardstick, not a proven bound.

It captures wherever a later request's match will end, and evicts the state with the least gap per
request until its next use; never to be used again is worth nothing. It may refuse a newcomer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.live_states import Scores
from spc_sglang.planning.matched_path import Admitted
from spc_sglang.planning.node import Kind, Node
from spc_sglang.planning.retention import Retention
from spc_sglang.replay.trace import BLOCK_TOKENS, Trace
from spc_sglang.replay.tree import RadixNode


class Future:
    """For each node where some match ends: the requests whose match ends there, in order."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.uses: dict[int, list[int]] = {}
        self._is_end = np.zeros(trace.num_nodes, dtype=np.bool_)
        seen = 0
        for index, path in enumerate(trace.paths):
            matched = int((path[: trace.prompt_blocks[index]] < seen).sum())
            seen = max(seen, int(path.max(initial=-1)) + 1)
            if matched:
                end = int(path[matched - 1])
                self._is_end[end] = True
                self.uses.setdefault(end, []).append(index)

    def next_use(self, node: int, after: int) -> float:
        """Index of the first later request whose match ends at the node, or infinity."""
        uses = self.uses.get(node, [])
        place = bisect_right(uses, after)
        return float(uses[place]) if place < len(uses) else np.inf

    def worthwhile(self, index: int) -> list[int]:
        """Depths in blocks on request `index`'s path where a later match ends."""
        path = self.trace.paths[index]
        ends = np.flatnonzero(self._is_end[path])
        return [int(i) + 1 for i in ends if self.next_use(int(path[i]), index) < np.inf]


class ClairvoyantRetention(Retention):
    """Keeps the next use of each state where the clock keeps the last one."""

    def __init__(self, slots: int, future: Future) -> None:
        super().__init__(slots)
        self.future = future

    @property
    def index(self) -> int:
        """The request being served."""
        return self.now - 1

    def admitted(self, matched: Node | None, restored: Node | None) -> Admitted:
        told = super().admitted(matched, restored)
        for node in [] if matched is None else matched.path():
            if node.is_live:
                self._look_ahead(node)
        return told

    def inserted(self, node: Node, kind: Kind) -> None:
        super().inserted(node, kind)
        self._look_ahead(node)

    def scores(self) -> Scores:
        live = len(self)
        return self.live.gap[:live] / (self.live.last_use[:live] - self.index)

    def choose_victim(
        self,
        exclude: Collection[Node] = (),
        locked: Callable[[Node], bool] | None = None,
        queue_hits: Mapping[Node, float] | None = None,
    ) -> Node | None:
        return super().choose_victim((), locked, queue_hits)

    def _look_ahead(self, node: Node) -> None:
        assert isinstance(node, RadixNode) and node.checkpoint is not None
        self.live.last_use[node.checkpoint.slot] = self.future.next_use(node.handle, self.index)


@dataclass(frozen=True, slots=True)
class EveryLaterMatch:
    """The schedule that goes with it."""

    retention: ClairvoyantRetention

    def depths(self, extend: Extend) -> Iterable[int]:
        retention = self.retention
        blocks = retention.future.worthwhile(retention.index)
        return [depth * BLOCK_TOKENS for depth in blocks]
