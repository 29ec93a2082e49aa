"""SGLang's Python tree core with shorter ways, registered as tree core backend "spc".

* A match compares a node's tokens at once before it searches for where they differ, asks from
  the deepest node upwards which one holds a state, and counts tokens on its way.
* An insert of a request starts at the node that the request has locked, and the lock moves down
  from there. SGLang 0.5.23 starts at the root and compares the whole prompt once more, collects
  its indices, and unlocks and locks the whole path, twice a request.
* A node with a child on the device is no leaf, and there are no host leaves.
* Its full-attention component is `kv_component.KvComponent`.

A host tier, sliding windows and session references are refused at start (`compatibility`).

The results are those of the base class (`tests/adapter/test_tree_core.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import (
    IncLockRefResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import BASE_COMPONENT_TYPE
from sglang.srt.mem_cache.unified_cache.components import (
    ComponentType,
    LRURefreshPhase,
    get_and_increase_time_counter,
)
from sglang.srt.mem_cache.unified_cache.tree_core_registry import (
    get_tree_core_factory,
    register_tree_core_backend,
)
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore

from spc_sglang.adapter.kv_component import KvComponent

BACKEND = "spc"
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


class SpcTreeCore(UnifiedTreeCore):
    """`UnifiedTreeCore` whose next insert may start below the root."""

    _start: tuple[int, int] | None = None
    insert_started_at: tuple[int, int] | None = None
    """Node and depth where the last insert after `insert_below` began; None: at the root."""

    @property
    def kv(self) -> KvComponent:
        component = self.components_by_type[BASE_COMPONENT_TYPE]
        assert isinstance(component, KvComponent)
        return component

    def reset(self) -> None:
        super().reset()
        self.kv.forget()

    def insert_below(self, node_id: int, depth: int) -> None:
        """The next insert has a locked node at `depth` on its path, with its own text."""
        self._start = (node_id, depth) if depth > 0 else None

    def insert_from_root(self) -> None:
        """End what `insert_below` began."""
        self._start = self.insert_started_at = None

    def moved_lock(self, held: Any, node_id: int, skip: Sequence[ComponentType]) -> Any:
        """`dec_lock_ref` of a receipt and `inc_lock_ref` of a node, in this order.

        Where the node lies below the receipt's, the KV above that one stays locked all along.
        """
        upper, lower = self.node_by_id(held.node_id), self.node_by_id(node_id)
        if not _lies_below(lower, upper):
            self.dec_lock_ref(held.node_id, held)
            return self.inc_lock_ref(node_id, skip)
        result = IncLockRefResult(node_id=node_id, skipped_lock_components=tuple(skip))
        for component in self.components:
            of_type = component.component_type
            if component is self.kv:
                result.delta = self.kv.lock_between(upper, lower)
                continue
            if of_type not in held.skipped_lock_components:
                component.release_component_lock(node=upper, params=held)
            if of_type not in skip:
                result = component.acquire_component_lock(node=lower, result=result)
        return result

    def _match_prefix_helper(self, key: RadixKey, params: MatchPrefixParams) -> MatchResult:
        nodes, hit_tokens, action = self._walk(key)
        validators = self._create_match_validators(params, match_device_only=True)
        valid, depth = len(nodes), hit_tokens
        while valid and not all(is_valid(nodes[valid - 1]) for is_valid in validators):
            valid -= 1
            depth -= len(nodes[valid].key)
        best = nodes[valid - 1] if valid else self.root_node
        self._touch_path(best)
        result = MatchResult(
            device_prefix_len=depth,
            last_device_node=best,
            last_host_node=best,
            best_match_node=best,
            last_visited_node_id=nodes[-1].id if nodes else None,
            full_kv_hit_length=hit_tokens,
        )
        for component in self.components:
            if component.component_type != BASE_COMPONENT_TYPE:  # it counts tokens on the host
                result = component.finalize_match_result_in_tree_core(result, params, [], valid)
        return result._replace(
            last_device_node=best.id,
            last_host_node=best.id,
            best_match_node=best.id,
            cache_actions=[] if action is None else [action],
        )

    def _touch_path(self, node: Any) -> None:
        """The state at a node was used, and the KV of all above it."""
        for component in self.components:
            if component.component_type != BASE_COMPONENT_TYPE:  # its order is the access time
                component.refresh_lru(LRURefreshPhase.MATCH_END, node, self.root_node)
        _touch_upwards(node)

    def _walk(self, key: RadixKey) -> tuple[list[Any], int, Any]:
        """Nodes on the device along a key, tokens they match, and the action of a split or None."""
        node, nodes, offset, length = self.root_node, [], 0, len(key)
        while offset < length:
            node = node.children.get(key.child_key_at(offset, self.page_size))
            if node is None or node.component_data[BASE_COMPONENT_TYPE].value is None:
                break
            matched = _shared_tokens(node.key, key, offset, length, self.page_size)
            offset += matched
            if matched < len(node.key):
                upper, action = self._split_node(node.key, node, matched)
                return [*nodes, upper], offset, action
            nodes.append(node)
        return nodes, offset, None

    def _insert_walk_step(self, state: Any) -> None:
        if self._start is not None:
            (node_id, depth), self._start = self._start, None
            if depth <= len(state.key) and state.params.rotation_base is None:
                state.node = self.node_by_id(node_id)
                state.key, state.value = state.key[depth:], state.value[depth:]
                state.total_prefix_length = depth
                self.insert_started_at = node_id, depth
                _touch_upwards(state.node)
        super()._insert_walk_step(state)

    def _update_evictable_leaf_sets(self, node: Any) -> None:
        if _has_child_on_device(node) or not self._is_device_leaf(node):
            self.evictable_device_leaves.discard(node)
        elif node not in self.evictable_device_leaves:
            self.evictable_device_leaves.add(node)
            self.kv.became_leaf(node)


def _shared_tokens(own: RadixKey, key: RadixKey, offset: int, length: int, page_size: int) -> int:
    """Tokens of a node's key that a longer key repeats at an offset."""
    end = offset + len(own.token_ids)
    if end <= length and own.token_ids == key.token_ids[offset:end]:
        return len(own.token_ids)
    return int(own.match_at(key, offset, page_size=page_size))


def _touch_upwards(node: Any) -> None:
    """The KV of a node and of all above it was used now."""
    now = get_and_increase_time_counter()
    while node is not None:
        node.last_access_time = now
        now -= _STEP_UP
        node = node.parent


def _lies_below(lower: Any, upper: Any) -> bool:
    """Whether the upper node is the lower one or lies above it."""
    while lower is not None and lower is not upper:
        lower = lower.parent
    return lower is upper


def _has_child_on_device(node: Any) -> bool:
    children = node.children.values()
    return any(child.component_data[BASE_COMPONENT_TYPE].value is not None for child in children)
