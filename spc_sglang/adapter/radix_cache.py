"""SGLang's radix cache with sparse recurrent checkpoints: plan, publish, free."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    EvictParams,
    EvictResult,
    InsertParams,
    InsertResult,
    MatchPrefixParams,
    MatchResult,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_unified_radix_cache
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore
from sglang.srt.runtime_context import get_exec, mamba_checkpoint_grid
from sglang.srt.utils.rank_consensus_checker import rank_consensus

from spc_sglang.adapter import capture_backends, hooks, tree_core
from spc_sglang.adapter import options as spc_options
from spc_sglang.adapter.admission import Admissions, note_match, tail_kind
from spc_sglang.adapter.below_own_node import BelowOwnNode
from spc_sglang.adapter.capture import Capture, CaptureLedger
from spc_sglang.adapter.capture_backend import CaptureBackend
from spc_sglang.adapter.capture_hooks import HANDOVER
from spc_sglang.adapter.capture_state_pass import StatePass
from spc_sglang.adapter.extend_planner import ExtendPlanner
from spc_sglang.adapter.follower_gate import FollowerGate
from spc_sglang.adapter.lookahead import QueueLookahead
from spc_sglang.adapter.metrics import PrometheusCounters
from spc_sglang.adapter.priced_states import PricedStates, Writer
from spc_sglang.adapter.slot_gate import SlotGate
from spc_sglang.adapter.state_file import StateFile
from spc_sglang.adapter.tree_core import SpcTreeCore
from spc_sglang.planning.counters import CacheCounters
from spc_sglang.planning.node import Kind
from spc_sglang.planning.presets import Policy, build

logger = logging.getLogger(__name__)

RECENT_CAPTURES = 64
"""Depths and kinds of the last published captures that the report lists."""


def create(context: TreeCacheBuildContext) -> SpcRadixCache:
    """Build the cache for one scheduler; the context was checked before."""
    chosen = spc_options.attached(context.server_args)
    params = context.params
    policy = build(chosen.policy(), params.req_to_token_pool.mamba_allocator.size)
    if chosen.eviction == "value" or chosen.placement == "learned":
        params.component_registry_override = {
            **(params.component_registry_override or {}),
            ComponentType.MAMBA: partial(PricedStates, retention=policy.retention),
        }
        tree_core.select(params)
    cache = create_unified_radix_cache(context, cache_class=SpcRadixCache)
    assert isinstance(cache, SpcRadixCache)
    state_file = None
    if chosen.state:
        state_file = StateFile(Path(chosen.state), policy, writes=context.tp_rank == 0)
    backend = capture_backends.choose(
        context.tp_worker.model_runner, allow_state_pass=chosen.state_pass == "on"
    )
    if isinstance(backend, StatePass):
        hooks.install(hooks.STATE_PASS)
    HANDOVER.backend = backend
    cache.configure(chosen, policy, backend, state_file)
    return cache


class SpcRadixCache(BelowOwnNode):
    """`UnifiedRadixCache` whose prefills leave checkpoints at planned depths.

    Slot accounting: free + cached + held by requests + pending captures = pool size. Pending
    captures are revocable, so no allocation fails because of them.
    """

    def __init__(self, params: CacheInitParams) -> None:
        self.counters = CacheCounters()
        self.recent: deque[tuple[int, str]] = deque(maxlen=RECENT_CAPTURES)
        self.prometheus: PrometheusCounters | None = None
        self.ledger = CaptureLedger()
        self.gate: FollowerGate | None = None
        self.slot_gate = SlotGate(self, self.ledger, self.counters)
        self.state_file: StateFile | None = None
        super().__init__(params)

    def configure(
        self,
        chosen: spc_options.SpcOptions,
        policy: Policy,
        backend: CaptureBackend | None,
        state_file: StateFile | None,
    ) -> None:
        """Set options, policy and capability once, before the first request."""
        self.options = chosen
        self.capture_backend = backend
        self.state_file = state_file
        self.capture_grid = mamba_checkpoint_grid(self.page_size)
        self.admissions = Admissions(
            policy.observations,
            self.counters,
            self.priced,
            state_file,
            self.capture_grid,
            self.ledger,
        )
        self.planner = ExtendPlanner(self, policy.captures)
        if self.metrics_collector is not None:
            self.prometheus = PrometheusCounters(self.metrics_collector.labels)
        logger.info("spc-sglang: %s", chosen)

    def attach_queue(self, queue: Callable[[], Sequence[Any]]) -> None:
        """Let evictions look at the requests that wait."""
        if self.priced is None:
            return
        lookahead = QueueLookahead(self.tree_core, self.priced.retention, queue)
        self.priced.queue_hits = lookahead
        if self.captures:
            self.gate = FollowerGate(lookahead, self.ledger, self.capture_grid)

    @contextmanager
    def holding_back(self, scheduler: Any, running: Any) -> Iterator[None]:
        """Leave out of a scheduling round who should wait for a checkpoint or for slots."""
        with ExitStack() as stack:
            if self.gate is not None:
                stack.enter_context(self.gate.holding_back(scheduler, running))
            if not self.disable:
                stack.enter_context(self.slot_gate.holding_back(scheduler, running))
            yield

    @cached_property
    def captures(self) -> bool:
        return self.options.captures and not self.disable and self.capture_backend is not None

    @cached_property
    def priced(self) -> PricedStates | None:
        """The component that watches the tree for us, if the options asked for one."""
        component = self.components[ComponentType.MAMBA]
        return component if isinstance(component, PricedStates) else None

    @cached_property
    def is_lazy(self) -> bool:
        """Whether requests have a second state slot only while they need it."""
        return bool(get_exec().mamba.enable_mamba_extra_buffer_lazy)

    # ---- observation

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = super().match_prefix(params)
        if params.req is not None and params.cow_mamba:  # a probe leaves cow_mamba unset
            note_match(params.req, result)
        return result

    # ---- slots

    def idle_slots(self) -> int:
        """Free or evictable: held neither by a request nor by a pending capture."""
        free = self.req_to_token_pool.mamba_allocator.available_size()
        return int(free + self.mamba_evictable_size())

    def _free_slot(self, slot: torch.Tensor) -> None:
        self.req_to_token_pool.mamba_allocator.free(slot)

    def _evict(self, params: EvictParams, *args: Any, **kwargs: Any) -> EvictResult:
        if self.disable or kwargs or not self._evicts_itself(params):
            return super()._evict(params, *args, **kwargs)
        assert self.priced is not None
        tokens, states = self._evict_leaves(params.num_tokens) if params.num_tokens > 0 else (0, 0)
        states += self.priced.evict_states(params.mamba_num - states)
        return EvictResult(num_tokens_evicted=tokens, mamba_num_evicted=states)

    def _evicts_itself(self, params: EvictParams) -> bool:
        """Whether victims are ours to choose: states, and KV too where it goes by LRU."""
        tokens = params.num_tokens + params.swa_num_tokens
        return self.priced is not None and (tokens == 0 or self.takes_short_ways)

    def _evict_leaves(self, tokens: int) -> tuple[int, int]:
        """Free so many tokens of KV, if there are; returns what went: tokens, and their states.

        All at once, where SGLang 0.5.23 goes through four calls and two frees a leaf.
        """
        assert isinstance(self.tree_core, SpcTreeCore)
        started = time.perf_counter()
        gone = {of: values for of, values in self.tree_core.evict_leaves(tokens).items() if values}
        freed = {of: sum(value.numel() for value in values) for of, values in gone.items()}
        self._drain_device_frees({of: [torch.cat(values)] for of, values in gone.items()})
        self.update_eviction_metrics(freed.get(ComponentType.FULL, 0), started)
        return freed.get(ComponentType.FULL, 0), freed.get(ComponentType.MAMBA, 0)

    @rank_consensus(same_params=["params"], same_results=True)
    def evict_for_alloc(self, params: EvictParams, **kwargs: Any) -> EvictResult:
        allocator = self.req_to_token_pool.mamba_allocator
        wanted = allocator.available_size() + params.mamba_num
        if not kwargs and self._evicts_itself(params):
            result = self._evict(params)
        else:
            result = super().evict_for_alloc(params, **kwargs)
        if params.mamba_num > 0:
            self._revoke(wanted - allocator.available_size())
        return result

    def _revoke(self, count: int) -> None:
        """Take slots back from pending captures, if any."""
        for slot in self.ledger.revoke(count) if count > 0 else ():
            self._free_slot(slot)
            self.counters.revoked += 1

    # ---- publication

    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        if not self._finds_slot_for_end(req):
            self.counters.ends_not_stored += 1
            return
        ends_prompt = up_to >= len(req.origin_input_ids)
        self._insert_for(req, tail_kind(req) if ends_prompt else Kind.SLACK)
        super().checkpoint(req, up_to=up_to, **kwargs)
        for capture in self.ledger.take(req):
            self._insert_for(req, capture.kind)
            self._publish(req, capture)
        if self.gate is not None:
            self.gate.stored(req, up_to)
        self.export_counters()

    def _finds_slot_for_end(self, req: Any) -> bool:
        """Whether SGLang, which stores this request's state now, would find a slot.

        It asserts where it does not. A finished request gives its own slot away; a lazy one, and
        one that stores below its own node, gives up its lock first. What is left out now is
        stored when the request ends.
        """
        if self.disable or req.finished() or self.mamba_evictable_size() > 0:
            return True
        if self.slot_gate.obtainable() > 0:
            return True
        if not self.enable_mamba_extra_buffer:
            return False
        unlocks_first = self.takes_short_ways or self.is_lazy
        unlocks = unlocks_first and self._lock_frees_a_state(req)
        return unlocks or req.kv.mamba_last_track_seqlen is None

    def _lock_frees_a_state(self, req: Any) -> bool:
        """Whether a state becomes evictable when this request gives up its lock on it."""
        lock, states = req.lock, ComponentType.MAMBA
        if lock is None or lock.swa_released or states in lock.receipt.skipped_lock_components:
            return False
        if not isinstance(self.tree_core, UnifiedTreeCore):
            return False  # its locks cannot be counted
        data = self.tree_core.node_by_id(lock.node).component_data[states]
        return data.value is not None and data.lock_ref == 1

    def _insert_for(self, req: Any, kind: Kind) -> None:
        if self.priced is not None:
            self.priced.writer = Writer(len(req.origin_input_ids), kind)

    def _publish(self, req: Any, capture: Capture) -> None:
        """Insert one captured state at its depth; the tree must own the KV up to there."""
        early = capture.depth > req.kv.cache_protected_len
        if early and capture.written and not req.finished() and not self.disable:
            self.ledger.add(req, capture)  # the tree will own the text after a later chunk
            return
        slot = capture.take_slot()
        if not capture.written:
            self.counters.unwritten += 1
            self._free_slot(slot)
        elif self.disable or early:
            self.counters.unowned += 1
            self._free_slot(slot)
        elif self._insert_state(req, capture.depth, slot):
            self.counters.published += 1
            self.recent.append((capture.depth, capture.kind.value))
        else:
            self.counters.duplicate += 1
            self._free_slot(slot)

    def _insert_state(self, req: Any, depth: int, slot: torch.Tensor) -> bool:
        """Split the request's path at `depth` and give that node the state.

        Returns False if the node has one. The KV is already the tree's own.
        """
        if isinstance(self.tree_core, SpcTreeCore):
            return self._state_on_own_path(req, depth, slot)
        return self._state_by_insert(req, depth, slot)

    def _state_on_own_path(self, req: Any, depth: int, slot: torch.Tensor) -> bool:
        """Climb from the request's own node, which is locked, instead of matching from the root.

        O(nodes between) and one split; an insert compares and copies `depth` tokens.
        """
        node, end = self.tree_core.node_by_id(req.last_node), req.kv.cache_protected_len
        while end - len(node.key) >= depth:
            end -= len(node.key)
            node = node.parent
        actions: list[Any] = []
        if end > depth:
            kept = len(node.key) - (end - depth)
            node, action = self.tree_core._split_node(node.key, node, kept)
            actions += [] if action is None else [action]
        result = InsertResult(prefix_len=depth)
        state = InsertParams(mamba_value=slot)
        mamba = self.components[ComponentType.MAMBA]
        mamba.commit_insert_component_data(node, False, state, result, actions)
        self._apply_cache_actions(actions)
        return not result.mamba_exist

    def _state_by_insert(self, req: Any, depth: int, slot: torch.Tensor) -> bool:
        """The same through `insert`; `prev_prefix_len=depth`: it frees nothing as a duplicate."""
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx, :depth]
        result = self.insert(
            InsertParams(
                key=RadixKey(
                    req.full_untruncated_fill_ids[:depth],
                    req.extra_key,
                    is_bigram=self.tree_core.is_eagle,
                    cache_salt=req.cache_salt,
                ),
                value=row.to(torch.int64, copy=True),
                mamba_value=slot,
                prev_prefix_len=depth,
                inserted_len=depth,
                priority=req.priority or 0,
                session_id=req.session_id,
                rotation_base=req.kv_rotation_base,
            )
        )
        assert result.mamba_exist or result.prefix_len == depth, (result.prefix_len, depth)
        return not result.mamba_exist

    # ---- release

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        super().on_release(req, checkpointed=checkpointed)
        if self.gate is not None:
            self.gate.released(req)
        for capture in self.ledger.take(req):
            self._free_slot(capture.take_slot())
            self.counters.released += 1

    def reset(self) -> None:
        self.ledger.clear()
        if self.priced is not None:
            self.priced.flushed()
        if self.state_file is not None:
            self.state_file.save()
        super().reset()

    def sanity_check(self) -> None:
        """SGLang's own check, and that our view of the tree is the tree."""
        super().sanity_check()
        if self.priced is not None:
            self.priced.check_integrity()

    # ---- read-out

    def export_counters(self) -> None:
        if self.prometheus is not None:
            self.prometheus.report(self.counters)

    def report(self) -> dict[str, Any]:
        """Counters and slot accounting for /server_info."""
        allocator = self.req_to_token_pool.mamba_allocator
        return {
            **self.counters.as_dict(),
            "pending": len(self.ledger),
            "held_requests": 0 if self.gate is None else self.gate.held_requests,
            "recent_captures": [list(entry) for entry in self.recent],
            "slots_total": allocator.size,
            "slots_free": allocator.available_size(),
            "slots_evictable": self.mamba_evictable_size(),
            "slots_protected": self.mamba_protected_size(),
            "captures_by": type(self.capture_backend).__name__ if self.captures else None,
            "tree_core": type(self.tree_core).__name__,
        }
