"""A request stores its state below the node it has locked, without walking what lies above.

SGLang 0.5.23 inserts from the root, reads all indices of the path back, and unlocks and locks
the whole path, at every `checkpoint`. What lies above the request's own node is locked, is the
request's own text, and is in its row of the request pool, so only the part below is touched. Needs
`tree_core.SpcTreeCore`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import TreeLock
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from spc_sglang.adapter.tree_core import SpcTreeCore


class BelowOwnNode(UnifiedRadixCache):
    """`UnifiedRadixCache` with a shorter `checkpoint` inside `storing_below_own_node`."""

    stores_below = False

    def __init__(self, params: CacheInitParams) -> None:
        self._storing: Any = None
        self._released: TreeLock | None = None
        super().__init__(params)

    @contextmanager
    def storing_below_own_node(self, req: Any) -> Iterator[None]:
        """The first insert, index read-out, unlock and lock inside are this request's."""
        if not self.stores_below or req.lock is None:
            yield
            return
        assert isinstance(self.tree_core, SpcTreeCore)
        self._storing = req
        self.tree_core.insert_below(req.last_node, req.kv.cache_protected_len)
        try:
            yield
        finally:
            self._storing = None
            self.tree_core.insert_from_root()
            released, self._released = self._released, None
            self.unlock(released)

    def path_device_indices(self, node: int) -> torch.Tensor:
        started = None if self._storing is None else self.tree_core.insert_started_at
        if started is None:
            return super().path_device_indices(node)
        start, depth = started
        row = self.req_to_token_pool.req_to_token[self._storing.kv.req_pool_idx, :depth]
        below: torch.Tensor = self.tree_core.collect_full_device_indices(node, start)
        return torch.cat([row.to(below.dtype), below])

    def unlock(self, lock: TreeLock | None) -> None:
        if lock is None or self._storing is None or self._storing.lock is not lock:
            super().unlock(lock)
        else:
            self._released = lock  # given back by the call of `lock` that follows

    def lock(self, node_id: int, skip_lock_components: Sequence[Any] = ()) -> TreeLock | None:
        if self._released is None:
            return super().lock(node_id, skip_lock_components)
        held, self._released = self._released.receipt, None
        result = self.tree_core.moved_lock(held, node_id, skip_lock_components)
        return TreeLock(node_id, result.to_dec_params())
