"""SGLang's full-attention component with shorter walks, for `tree_core.SpcTreeCore`.

* Locking and unlocking climb from a node to the root. SGLang 0.5.23 asks each tensor for its
  length in Python and looks for a new leaf at every step; here the tokens of the key are counted,
  one KV index each, and only the node where the climb began can be a leaf.
* Evicting KV, SGLang collects and sorts all leaves of the tree, once a batch that needs room.
  Here a heap of leaves is kept under LRU: a node's time only grows, so an entry that is behind
  is put back when it comes up. `SpcTreeCore.evict_leaves` takes them from there.

The results are those of the base class (`tests/adapter/test_tree_core.py`).
"""

from __future__ import annotations

import heapq
from typing import Any

from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.components.full import FullComponent

_MOST_STALE = 64
"""Entries beyond two a leaf that the heap may hold before it is built anew."""


class KvComponent(FullComponent):
    """`FullComponent` for a tree without a host tier and session references."""

    def __init__(self, cache: Any, params: CacheInitParams) -> None:
        super().__init__(cache, params)
        self.is_lru = params.eviction_policy.lower() == "lru"
        self._leaves: list[tuple[float, Any]] = []

    def value_len(self, node: Any) -> int:
        value = node.component_data[self.component_type].value
        return 0 if value is None else int(value.numel())

    def redistribute_on_node_split(self, new_parent: Any, child: Any) -> None:
        upper, lower = (node.component_data[self.component_type] for node in (new_parent, child))
        cut = len(new_parent.key)
        upper.lock_ref = lower.lock_ref
        upper.value, lower.value = lower.value[:cut].clone(), lower.value[cut:].clone()

    # ---- locks

    def acquire_component_lock(self, node: Any, result: Any, lock_host: bool = False) -> Any:
        if lock_host:
            return super().acquire_component_lock(node, result, lock_host)
        result.delta = self.lock_between(self.tree_core.root_node, node)
        return result

    def lock_between(self, upper: Any, lower: Any) -> int:
        """Lock the KV of a node and of those above it up to `upper`, which is left out.

        Returns the tokens that were evictable before.
        """
        core, of_type, newly_locked = self.tree_core, int(self.component_type), 0
        core.evictable_device_leaves.discard(lower)  # all above it have a child
        while lower is not upper:
            data = lower.component_data[of_type]
            if data.lock_ref == 0:
                newly_locked += len(lower.key.token_ids)
            data.lock_ref += 1
            lower = lower.parent
        core.component_evictable_size_[of_type] -= newly_locked
        core.component_protected_size_[of_type] += newly_locked
        return newly_locked

    def release_component_lock(self, node: Any, params: Any, lock_host: bool = False) -> None:
        if lock_host:
            super().release_component_lock(node, params, lock_host)
            return
        core, of_type = self.tree_core, int(self.component_type)
        root, climbing, unlocked = core.root_node, node, 0
        while climbing is not root:
            data = climbing.component_data[of_type]
            assert data.lock_ref > 0, f"node {climbing.id} is not locked"
            data.lock_ref -= 1
            if data.lock_ref == 0:
                unlocked += len(climbing.key.token_ids)
            climbing = climbing.parent
        core.component_evictable_size_[of_type] += unlocked
        core.component_protected_size_[of_type] -= unlocked
        core._update_evictable_leaf_sets(node)  # all above it have a child on the device

    # ---- eviction

    def forget(self) -> None:
        """The tree is empty; an old leaf would keep it and its indices alive."""
        self._leaves = []

    def became_leaf(self, node: Any) -> None:
        """The node was added to the evictable leaves."""
        if not self.is_lru:
            return
        leaves = self.tree_core.evictable_device_leaves
        if len(self._leaves) > 2 * len(leaves) + _MOST_STALE:
            self._leaves = [(leaf.last_access_time, leaf) for leaf in leaves]
            heapq.heapify(self._leaves)
        else:
            heapq.heappush(self._leaves, (node.last_access_time, node))

    def oldest_leaf(self) -> Any:
        """Take the least recently used leaf from the heap; None if no leaf can go."""
        leaves = self.tree_core.evictable_device_leaves
        while self._leaves:
            then, node = self._leaves[0]
            if node not in leaves:
                heapq.heappop(self._leaves)
            elif node.last_access_time > then:
                heapq.heapreplace(self._leaves, (node.last_access_time, node))
            else:
                heapq.heappop(self._leaves)
                return node
        return None
