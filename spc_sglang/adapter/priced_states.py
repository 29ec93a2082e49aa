"""SGLang's recurrent-state component with victims chosen by what they save.

The tree calls its components when a node gets or loses a state, is split or is deleted. This
one passes each of these events to `Retention`, which keeps the price of every live state, and
asks it for the victim whenever the state pool needs a slot. A victim loses its state only; its
KV, also that of a leaf, stays under SGLang's own eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.unified_cache.components import EvictLayer, MambaComponent
from torch import Tensor

from spc_sglang.planning.matched_path import Admitted
from spc_sglang.planning.node import Kind, Node
from spc_sglang.planning.retention import Retention


class Writer(NamedTuple):
    """The request whose states are being inserted, and why they were stored."""

    prompt_tokens: int = 0
    kind: Kind = Kind.TAIL


class Lookup(NamedTuple):
    """What the tree knew about one admitted request.

    `owner_prompt` is the prompt length of the request that brought the text at the match depth.
    """

    admitted: Admitted
    owner_prompt: int | None


class PricedStates(MambaComponent):
    """`MambaComponent` that evicts what `retention` says; needs the Python tree core."""

    def __init__(self, cache: Any, params: CacheInitParams, *, retention: Retention) -> None:
        super().__init__(cache, params)
        self.retention = retention
        self.queue_hits: Callable[[], Mapping[Node, float]] | None = None
        self.writer = Writer()
        """Whose states the next inserts bring."""
        self._wanted = 0

    # ---- for the cache

    def look_up(self, match_id: int | None, restored_id: int, restore_depth: int) -> Lookup:
        """Report one admission to the retention. O(path).

        `match_id` is the deepest matched node, which may be gone by now; the node that the
        request resumes from is locked and is not.
        """
        arena = self.tree_core._node_arena
        restored = arena.get(restored_id) if restore_depth > 0 else None
        if restored is not None and not restored.is_live:
            restored = None
        matched = arena.get(match_id, restored)
        owner = None if matched is None else matched.owner_prompt
        return Lookup(self.retention.admitted(matched, restored), owner)

    def outbids(self, kind: Kind, gap: int) -> bool:
        """Whether a new state is worth more than the one that would be evicted for it."""
        return self.retention.outbids(kind, gap, self._is_locked, self._expected_hits())

    def flushed(self) -> None:
        """The tree was emptied without an event for each node."""
        self.retention.flushed()

    def check_integrity(self) -> None:
        """Assert that the priced states are exactly the tree's, each at its depth. O(nodes)."""
        stated = 0
        for node in self.tree_core._node_arena.values():
            has_state = node.component_data[self.component_type].value is not None
            assert node.is_live is has_state, node.id
            assert node.depth == sum(len(above.key) for above in node.path()), node.id
            stated += has_state
        assert len(self.retention) == stated, (len(self.retention), stated)

    # ---- events of the tree

    def commit_insert_component_data(
        self, node: Any, is_new_leaf: bool, params: Any, result: Any, cache_actions: list[Any]
    ) -> None:
        super().commit_insert_component_data(node, is_new_leaf, params, result, cache_actions)
        if is_new_leaf:
            node.owner_prompt = self.writer.prompt_tokens
            self.retention.leaf(node, node.parent.depth + len(node.key))
        if not result.mamba_exist:
            self.retention.inserted(node, self.writer.kind)

    def redistribute_on_node_split(self, new_parent: Any, child: Any) -> None:
        """The state stays with the lower half; a new node has none."""
        new_parent.owner_prompt = child.owner_prompt
        self.retention.split(new_parent, child.depth - len(child.key), child)

    def evict_component(
        self, node: Any, *args: Any, target: EvictLayer = EvictLayer.DEVICE, **kwargs: Any
    ) -> tuple[int, int]:
        had_state = node.component_data[self.component_type].value is not None
        freed: tuple[int, int] = super().evict_component(node, *args, target=target, **kwargs)
        if had_state and target is EvictLayer.DEVICE:  # else the node goes as a whole
            self.retention.evicted(node)
        return freed

    def discard_deleted_session_leaf(self, node: Any) -> None:
        super().discard_deleted_session_leaf(node)
        self.retention.forgotten(node)

    # ---- choice of the victim

    def _evict_device_start(self, request_cnt: int) -> None:
        self._wanted = request_cnt

    def _evict_device_next_node(
        self,
        tracker: dict[Any, int],
        device_frees: dict[Any, list[Any]],
        host_frees: dict[Any, list[Any]],
        cache_actions: list[Any],
    ) -> None:
        """Free one state; the caller goes on while there is progress and need."""
        if tracker[self.component_type] < self._wanted:
            slot = self.take_cheapest()
            if slot is not None:
                device_frees[self.component_type].append(slot)
                tracker[self.component_type] += int(slot.numel())

    def _evict_device_end(self) -> None:
        self._wanted = 0

    def _alloc_mamba_slot(self, req: Any = None) -> Tensor:
        """A slot for the state that a request goes on with while the tree takes its last one.

        From a full pool it is the victim's own, without the way through the free list. A lazy
        request gives up its lock first, which SGLang does.
        """
        pool = self.cache.req_to_token_pool
        if pool.mamba_allocator.available_size() == 0 and not self.cache.is_lazy:
            slot = self.take_cheapest()
            if slot is not None:
                return slot
        found: Tensor = super()._alloc_mamba_slot(req)
        return found

    def evict_states(self, wanted: int) -> int:
        """Free up to `wanted` states; returns how many.

        SGLang's walk over its tree does the same and asks after each state which step is next;
        without a host tier there is only this one.
        """
        freed = 0
        while freed < wanted and (slot := self.take_cheapest()) is not None:
            self._free_mamba_value(slot)
            freed += int(slot.numel())
        return freed

    def take_cheapest(self) -> Tensor | None:
        """Take the state of least value out of the tree; its slot, or None if none can go."""
        victim = self.retention.choose_victim(
            locked=self._is_locked, queue_hits=self._expected_hits()
        )
        if victim is None:
            return None
        self.retention.evicted(victim)
        return self.take_state(victim)

    def take_state(self, node: Any) -> Tensor:
        """Take an unlocked state out of the tree; its slot. The retention is not told."""
        core, of_type = self.tree_core, self.component_type
        data = node.component_data[of_type]
        slot: Tensor = data.value
        data.value = None
        core.component_evictable_size_[of_type] -= int(slot.numel())
        core.lru_lists[of_type].remove_node(node)
        return slot

    def _expected_hits(self) -> Mapping[Node, float] | None:
        return self.queue_hits() if self.queue_hits is not None else None

    def _is_locked(self, node: Any) -> bool:
        return bool(node.component_data[self.component_type].lock_ref > 0)
