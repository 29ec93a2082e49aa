"""Plans the captures of one prefill batch and takes a slot for each; around prepare_for_extend."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from spc_sglang.adapter.admission import observation_of
from spc_sglang.adapter.capture import Capture, CapturePlan, Refusal
from spc_sglang.planning.capture_policy import Extend, reachable
from spc_sglang.planning.learned import PlannedCaptures, Proposal
from spc_sglang.planning.node import Kind

if TYPE_CHECKING:
    from spc_sglang.adapter.radix_cache import SpcRadixCache

SLACK_SHARE = 0.05
GUESSES_TRIED = 8
"""One guess in so many is captured although it seems worth less than its victim."""


class ExtendPlanner:
    """Turns proposals into captures that own a slot each, never one that a request needs."""

    def __init__(self, cache: SpcRadixCache, captures: PlannedCaptures) -> None:
        self._cache = cache
        self.captures = captures
        self._pool = cache.req_to_token_pool
        self._slots = self._pool.mamba_allocator
        self._ledger = cache.ledger
        self._counters = cache.counters
        self._cheap_guesses = 0

    def before_extend(self, batch: Any) -> None:
        """Take over the branch point, so that the engine keeps tracking the end as well.

        The engine can track one position a request and forward, and gives up the end for the
        branch. Where no slot is left for us, its own choice stays.
        """
        if not (self._cache.captures and self._cache.enable_mamba_extra_buffer):
            return
        if all(req.mamba_branching_seqlen is None for req in batch.reqs):
            return
        if self._spare_slots() <= self._slots_to_bind(batch):
            return
        for req in batch.reqs:
            req.mamba_branching_seqlen = None

    def plan_extend(self, batch: Any) -> CapturePlan | None:
        """Observe the requests of a batch and plan its captures; None if there are none."""
        started = time.perf_counter()
        plan = CapturePlan(list(batch.prefix_lens), list(batch.extend_lens))
        for row, req in enumerate(batch.reqs):
            self._cache.admissions.observe(req)
            if self._cache.captures and not req.skip_radix_cache_insert:
                self._plan_request(plan, row, req)
        self._counters.planning_seconds += time.perf_counter() - started
        return plan if plan.captures else None

    def extend_of(
        self, req: Any, prefix: int, end: int, engine_depth: int | None, *, slack: bool
    ) -> Extend:
        """What the placement is told of one forward of a request, as it was last looked up."""
        observation = observation_of(req)
        return Extend(
            prefix=prefix,
            end=end,
            prompt=len(req.origin_input_ids),
            grid=self._cache.capture_grid,
            overlap_depth=observation.overlap_depth,
            restore_depth=observation.restore_depth,
            engine_depth=engine_depth,
            overlaps=observation.overlaps,
            continues=observation.continues,
            slack=slack,
        )

    def _plan_request(self, plan: CapturePlan, row: int, req: Any) -> None:
        prefix, length = plan.prefix_lens[row], plan.extend_lens[row]
        if length <= 0:
            return
        end = prefix + length
        tracks = self._cache.enable_mamba_extra_buffer
        engine_depth = req.kv.mamba_last_track_seqlen if tracks else end
        extend = self.extend_of(req, prefix, end, engine_depth, slack=self._has_slack())
        for depth, kind in [*self._asked_of(req, extend), *self.captures.proposals(extend)]:
            if any(capture.row == row and capture.depth == depth for capture in plan.captures):
                continue
            if self._ledger.holds_same_prefix(req, depth):
                self._counters.in_flight_elsewhere += 1
                continue
            if not self._worth_a_slot(plan, row, extend, Proposal(depth, kind)):
                self._counters.refused += 1
                self._ledger.refused(req, depth, Refusal.TOO_CHEAP)
                continue
            slot = self._take_spare_slot()
            if slot is None:
                self._counters.no_slot += 1
                self._ledger.refused(req, depth, Refusal.NO_SLOT)
                continue
            capture = Capture(row, depth, slot, kind)
            plan.captures.append(capture)
            self._ledger.add(req, capture)
            self._counters.captured += 1

    def _asked_of(self, req: Any, extend: Extend) -> list[Proposal]:
        """Depths at which waiting followers leave this request's prompt."""
        if self._cache.gate is None:
            return []
        depths = reachable(extend, self._cache.gate.admitted(req))
        return [Proposal(depth, Kind.BRANCH) for depth in depths]

    def _worth_a_slot(
        self, plan: CapturePlan, row: int, extend: Extend, proposal: Proposal
    ) -> bool:
        """Whether a guess is worth more than the state that it would push out.

        Now and then one is captured all the same, so that its class goes on being learnt.
        """
        priced = self._cache.priced
        if not proposal.kind.is_guess or self._slots.available_size() > 0 or priced is None:
            return True
        planned = [c.depth for c in plan.captures if c.row == row and c.depth < proposal.depth]
        above = max(planned, default=extend.restore_depth)
        if priced.outbids(proposal.kind, proposal.depth - above):
            return True
        self._cheap_guesses += 1
        return self._cheap_guesses % GUESSES_TRIED == 0

    # ---- slots

    def _spare_slots(self) -> int:
        """Free or evictable slots beyond one for each running request.

        The engine needs one more slot whenever a running request donates its state.
        """
        return self._cache.idle_slots() - self._rows_in_use()

    def _rows_in_use(self) -> int:
        """Running requests."""
        return int(self._pool.size - len(self._pool.free_slots))

    def _has_slack(self) -> bool:
        """Whether more than 5 % of the pool is free beyond what running requests may need."""
        free = self._slots.available_size() - self._rows_in_use()
        return bool(free > SLACK_SHARE * self._slots.size)

    def _slots_to_bind(self, batch: Any) -> int:
        per_request = 1 + self._pool.mamba_initial_tracking_slots
        return sum(2 + per_request for req in batch.reqs if not req.kv.holds_kv)

    def _take_spare_slot(self) -> torch.Tensor | None:
        if self._spare_slots() <= 0:
            return None
        slot = self._slots.alloc(1)
        if slot is None:
            self._cache.evict(EvictParams(num_tokens=0, mamba_num=1))
            slot = self._slots.alloc(1)
        return slot
