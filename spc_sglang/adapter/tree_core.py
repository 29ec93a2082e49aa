"""SGLang's Python tree core with shorter ways, registered as tree core backend "spc".

* A match compares a node's tokens at once before it searches for where they differ, and asks from
  the deepest node upwards which one holds a state. That all nodes on the path were used is noted
  at the deepest one, and moves up when that leaves the tree: only leaves are evicted by it.
* Nodes are `tree_node.TreeNode`s: a few objects where SGLang has some thirty.
* A request's insert starts at the node that it has locked, and the lock moves down from there
  (`below_own_node` says what SGLang 0.5.23 does instead, twice a request).
* All nodes are on the device: a node with a child is no leaf, and there are no host leaves.
* Its full-attention component is `kv_component.KvComponent`.

A host tier, sliding windows and session references are refused at start (`compatibility`).

The results are those of the base class (`tests/adapter/test_tree_core.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefParams,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.cache_action import FreeDeviceKV
from sglang.srt.mem_cache.unified_cache.component_type import BASE_COMPONENT_TYPE
from sglang.srt.mem_cache.unified_cache.components import (
    ComponentType,
    get_and_increase_time_counter,
)
from sglang.srt.mem_cache.unified_cache.tree_core_registry import (
    get_tree_core_factory,
    register_tree_core_backend,
)
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore

from spc_sglang.adapter.kv_component import KvComponent
from spc_sglang.adapter.tree_node import TreeNode

BACKEND = "spc"
_KV, _STATES = int(BASE_COMPONENT_TYPE), int(ComponentType.MAMBA)
Components = tuple[ComponentType, ...]
_STEP_UP = 0.00001
"""How much older each node on a path looks than the one below, as upstream."""


def select(params: CacheInitParams) -> None:
    """Have a cache built with this core and its component."""
    if get_tree_core_factory(BACKEND) is None:
        register_tree_core_backend(BACKEND, SpcTreeCore)
    params.tree_core_backend = BACKEND
    params.component_registry_override = {
        **(params.component_registry_override or {}),
        BASE_COMPONENT_TYPE: KvComponent,
    }


class Grown(NamedTuple):
    """What an insert did, what its caller has to do, and where the tree had the text already.

    `shared` holds the start of each such stretch and the tree's own KV indices of it.
    """

    result: InsertResult
    actions: list[Any]
    shared: list[tuple[int, torch.Tensor]]


class SpcTreeCore(UnifiedTreeCore):
    """`UnifiedTreeCore` that can insert from a locked node on."""

    @property
    def kv(self) -> KvComponent:
        component = self.components_by_type[BASE_COMPONENT_TYPE]
        assert isinstance(component, KvComponent)
        return component

    def reset(self) -> None:
        super().reset()
        self.kv.forget()

    def grow_below(
        self, node_id: int, depth: int, key: RadixKey, row: torch.Tensor, params: InsertParams
    ) -> Grown:
        """Insert a key of which all up to a locked node at `depth` is in the tree.

        `row` holds the KV index of each token, `params` the state. O(nodes below) and copies of
        what lies below; the result is that of an insert of the whole key.
        """
        node, length = self.node_by_id(node_id), len(key)
        child_key, actions, shared = _child_keys(key, self.page_size), [], []
        while depth < length and (child := node.children.get(child_key(depth))) is not None:
            count = child.key.match_at(key, depth, page_size=self.page_size)
            if count < len(child.key):
                child, action = self._split_node(child.key, child, count)
                actions += [] if action is None else [action]
            actions.append(FreeDeviceKV([_indices(row, depth, depth + count)]))
            shared.append((depth, child.component_data[_KV].value))
            node, depth = child, depth + count
        is_new = depth < length
        if is_new:
            node = self._add_leaf(node, key[depth:length], _indices(row, depth, length), params)
        result = InsertResult(prefix_len=depth, last_device_node=node.id)
        self.components_by_type[_STATES].commit_insert_component_data(
            node=node, is_new_leaf=is_new, params=params, result=result, cache_actions=actions
        )
        _used(node)
        return Grown(result, actions, shared)

    def move_lock(self, held: DecLockRefParams, node_id: int, skip: Components) -> DecLockRefParams:
        """Unlock the node of a receipt and lock another at or below it; returns its receipt.

        The KV above the upper node stays locked all along.
        """
        upper, lower = self.node_by_id(held.node_id), self.node_by_id(node_id)
        states = self.components_by_type[_STATES]
        self.kv.lock_between(upper, lower)
        if _STATES not in held.skipped_lock_components:
            states.release_component_lock(node=upper, params=held)
        if _STATES not in skip:
            states.acquire_component_lock(node=lower, result=None)
        return DecLockRefParams(node_id=node_id, skipped_lock_components=skip)

    def evict_leaves(self, tokens: int) -> dict[ComponentType, list[torch.Tensor]]:
        """Take least recently used leaves out of the tree, with their states, under LRU.

        Ends when they held `tokens` KV indices or no leaf can go. Returns what is to be freed.
        """
        freed, values, states = 0, [], []
        of_states = self.components_by_type[_STATES]
        while freed < tokens and (leaf := self.kv.oldest_leaf()) is not None:
            self.kv_events.record_remove(leaf)
            value = leaf.component_data[_KV].value
            values.append(value)
            freed += value.numel()
            if leaf.component_data[_STATES].value is not None:
                states.append(of_states.take_state(leaf))
            self.evictable_device_leaves.discard(leaf)
            self._remove_leaf_from_parent(leaf)
            self._update_evictable_leaf_sets(leaf.parent)
        self.component_evictable_size_[_KV] -= freed
        return {BASE_COMPONENT_TYPE: values, ComponentType.MAMBA: states}

    def _match_prefix_helper(self, key: RadixKey, params: MatchPrefixParams) -> MatchResult:
        nodes, hit_tokens, action = self._walk(key)
        best = next((node for node in reversed(nodes) if node.is_live), self.root_node)
        if best.is_live:  # the state at a node was used, and the KV of all above it
            self.lru_lists[_STATES].reset_node_mru(best)
        _used(best)
        depth, on_grid = best.depth, hit_tokens // self.state_grid * self.state_grid
        return MatchResult(
            device_prefix_len=depth,
            last_device_node=best.id,
            last_host_node=best.id,
            best_match_node=best.id,
            last_visited_node_id=nodes[-1].id if nodes else None,
            full_kv_hit_length=hit_tokens,
            mamba_branching_seqlen=on_grid if on_grid > depth else None,
            cache_actions=[] if action is None else [action],
        )

    @cached_property
    def state_grid(self) -> int:
        """Depths at which SGLang can store a state are multiples of this."""
        return int(self.components_by_type[_STATES].mamba_checkpoint_grid)

    def _walk(self, key: RadixKey) -> tuple[list[Any], int, Any]:
        """Nodes on the device along a key, tokens they match, and the action of a split or None."""
        node, nodes, offset, length = self.root_node, [], 0, len(key)
        child_key, ids = _child_keys(key, self.page_size), key.token_ids
        while offset < length:
            node = node.children.get(child_key(offset))
            if node is None:
                break
            end = offset + len(node.token_ids)
            if end > length or node.token_ids != ids[offset:end]:
                shared = node.key.match_at(key, offset, page_size=self.page_size)
                upper, action = self._split_node(node.key, node, shared)
                return [*nodes, upper], offset + shared, action
            nodes.append(node)
            offset = end
        return nodes, offset, None

    def _new_node(self, priority: int = 0) -> TreeNode:
        node = TreeNode(self.component_types, priority)
        self._register_node(node)
        return node

    def _add_leaf(
        self, parent: TreeNode, key: RadixKey, indices: torch.Tensor, params: InsertParams
    ) -> TreeNode:
        """`_add_new_node` that keeps `indices` as they are; the caller locks the leaf."""
        leaf = self._new_node(params.priority)
        leaf.parent, leaf.key, leaf.token_ids = parent, key, key.token_ids
        leaf.component_data[_KV].value = indices
        parent.children[_child_keys(key, self.page_size)(0)] = leaf
        self.component_evictable_size_[_KV] += len(key.token_ids)
        self.evictable_device_leaves.discard(parent)
        self.kv_events.record_store(leaf, session_id=params.session_id)
        return leaf

    def _add_new_node(self, parent: Any, key: RadixKey, *args: Any, **kwargs: Any) -> TreeNode:
        node: TreeNode = super()._add_new_node(parent, key, *args, **kwargs)
        node.token_ids = key.token_ids
        return node

    def _split_node(self, key: RadixKey, child: Any, split_len: int) -> tuple[TreeNode, Any]:
        """Less what only a host tier needs, and looking for leaves, which stay what they were."""
        if self.tlru_bookkeeping or child.hash_value is not None:  # set where KV events are
            upper, action = super()._split_node(key, child, split_len)
            upper.token_ids, child.token_ids = upper.key.token_ids, child.key.token_ids
            return upper, action
        child_key, parent = _child_keys(key, self.page_size), child.parent
        upper = self._new_node(child.priority)
        upper.creation_time, upper.parent = child.creation_time, parent
        if child.hit_count:
            upper.hit_count = child.hit_count
        if child.rotation_base is not None:
            upper.rotation_base = child.rotation_base
        upper.key, child.key = key[:split_len], key[split_len:]
        upper.token_ids, child.token_ids = upper.key.token_ids, child.key.token_ids
        upper.children[child_key(split_len)] = child
        parent.children[child_key(0)] = child.parent = upper
        for component in self.components:
            component.redistribute_on_node_split(upper, child)
        child.last_access_time = get_and_increase_time_counter()
        return upper, None

    def _remove_leaf_from_parent(self, node: Any) -> None:
        super()._remove_leaf_from_parent(node)
        used = node.used_at - _STEP_UP
        parent = node.parent
        parent.used_at = max(parent.used_at, used)
        parent.last_access_time = max(parent.last_access_time, used)

    def _is_device_leaf(self, node: Any) -> bool:
        """Whether KV eviction may take a node: unlocked, without children, not the root."""
        if node.children or node.parent is None:
            return False
        kv, states = node.component_data[_KV], node.component_data[_STATES]
        return kv.value is not None and kv.lock_ref == states.lock_ref == 0

    def _update_evictable_leaf_sets(self, node: Any) -> None:
        if not self._is_device_leaf(node):
            self.evictable_device_leaves.discard(node)
        elif node not in self.evictable_device_leaves:
            self.evictable_device_leaves.add(node)
            self.kv.became_leaf(node)


def _child_keys(key: RadixKey, page_size: int) -> Callable[[int], Any]:
    """The key of the child that goes on at an offset: `RadixKey.child_key_at`, less its checks."""
    if page_size == 1 and key.extra_key is None and key.cache_salt is None:
        return key.token_ids.__getitem__
    return lambda offset: key.child_key_at(offset, page_size)


def _indices(row: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """A copy of a part of a request's row, as the tree and the allocator hold them."""
    return row[start:end].to(torch.int64, copy=True)


def _used(node: TreeNode) -> None:
    """The KV of a node and of all above it was used now."""
    node.last_access_time = node.used_at = float(get_and_increase_time_counter())
