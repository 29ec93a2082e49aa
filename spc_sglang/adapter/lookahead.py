"""Which states the waiting queue will resume from, asked before each eviction.

A waiting request at position i promises 1 / (i + 1) hits to the deepest live state on its
match. One whose prompt extends an earlier waiting prompt promises nothing: it will resume from
what that one leaves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from spc_sglang.adapter.capture import namespace_of
from spc_sglang.planning.node import Node
from spc_sglang.planning.queue_hits import expected_hits
from spc_sglang.planning.retention import Retention

MOST_REQUESTS = 16
REFRESH_REQUESTS = 8
"""A waiting request's match is looked up again after this many admissions."""


class QueueLookahead:
    """Expected hits by node, from the scheduler's queue as it stands."""

    def __init__(
        self, tree_core: Any, retention: Retention, queue: Callable[[], Sequence[Any]]
    ) -> None:
        self._tree_core = tree_core
        self._retention = retention
        self._queue = queue

    def __call__(self) -> Mapping[Node, float]:
        waiting = self._queue()[:MOST_REQUESTS]
        if not waiting:
            return {}
        points: list[Node | None] = []
        for position, req in enumerate(waiting):
            earlier = waiting[:position]
            extends_earlier = any(_extends(req, other) for other in earlier)
            points.append(None if extends_earlier else self._resume_point(req))
        return expected_hits(points)

    def resume_depth(self, req: Any) -> int:
        """Tokens that the request would take from the cache if it were admitted now.

        Looks at the tree as it is, not at a remembered match.
        """
        req._spc_waiting_match = None
        node = self._resume_point(req)
        return 0 if node is None else node.depth

    def _resume_point(self, req: Any) -> Node | None:
        """The deepest live state on the request's full-KV match. O(path) once matched."""
        seen = getattr(req, "_spc_waiting_match", None)
        if seen is None or self._retention.now - seen[0] >= REFRESH_REQUESTS:
            seen = (self._retention.now, *self._match(req))
            req._spc_waiting_match = seen
        _, matched, node_id = seen
        node: Node | None = self._tree_core._node_arena.get(node_id)
        while node is not None and not (node.is_live and node.depth <= matched):
            node = node.parent
        return node

    def _match(self, req: Any) -> tuple[int, int]:
        """Matched tokens and the deepest node they reach into; changes nothing in the tree."""
        ids = req.origin_input_ids
        key = RadixKey(ids, req.extra_key, limit=len(ids) - 1, cache_salt=req.cache_salt)
        matched, node_id, _ = self._tree_core.match_full_device_prefix(key)
        return matched, node_id


def _extends(req: Any, earlier: Any) -> bool:
    """Whether the prompt of `req` begins with the whole prompt of `earlier`."""
    ids: array[int] = req.origin_input_ids
    head: array[int] = earlier.origin_input_ids
    count = len(head)
    if count > len(ids) or (count and ids[count - 1] != head[-1]):
        return False
    return namespace_of(req) == namespace_of(earlier) and ids[:count] == head
