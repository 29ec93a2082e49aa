"""Requests wait where SGLang 0.5.23 would run out of state slots and stop the server.

A request that is admitted takes one slot for its state, its tracking slots, and locks the state
that it resumes from. SGLang sizes the pool for that, but asserts where it is wrong (a pool whose
states are locked, `Can not alloc mamba cache`). Here the requests beyond what fits stay in the
queue for the round. With SGLang's own sizes everything fits and nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spc_sglang.adapter.capture import CaptureLedger
from spc_sglang.adapter.withheld import withheld
from spc_sglang.planning.counters import CacheCounters


class SlotGate:
    """How many requests of the queue find slots in this round."""

    def __init__(self, cache: Any, ledger: CaptureLedger, counters: CacheCounters) -> None:
        self._cache = cache
        self._ledger = ledger
        self._counters = counters

    @contextmanager
    def holding_back(self, scheduler: Any, running: Any) -> Iterator[None]:
        """Take what does not fit out of the waiting queue while a batch is formed from it."""
        queue = scheduler.waiting_queue
        if not queue:  # as in most rounds of decoding
            yield
            return
        chunked = scheduler.chunked_req is not None
        fitting = self.fitting(reserved=int(chunked))
        if not running.reqs and not chunked and scheduler.last_batch is None:
            fitting = max(fitting, 1)  # nothing will free a slot: let SGLang decide
        rows = self._cache.req_to_token_pool.available_size()
        # where the rows of the request pool are the limit, SGLang stops by itself
        held = _in_order(scheduler)[fitting:] if min(len(queue), rows) > fitting else []
        for req in held:
            self._counters.waits_for_slots += not getattr(req, "_spc_waited_for_slots", False)
            req._spc_waited_for_slots = True
        with withheld(scheduler, held):
            yield

    def fitting(self, reserved: int = 0) -> int:
        """Requests for which free, evictable and revocable slots suffice."""
        each = 2 + int(self._cache.req_to_token_pool.mamba_initial_tracking_slots)
        return max(0, self.obtainable() - reserved) // each

    def obtainable(self) -> int:
        """Slots that an allocation can get: free, evictable, or taken back from captures."""
        return int(self._cache.idle_slots()) + len(self._ledger)


def _in_order(scheduler: Any) -> Sequence[Any]:
    """The queue as SGLang would serve it; an order by matches is not known before the round."""
    queue: list[Any] = scheduler.waiting_queue
    if not scheduler.enable_priority_scheduling:
        return queue
    ordered = list(queue)
    scheduler.policy._sort_by_priority_and_fcfs(ordered, scheduler.policy.priority_sign)
    return ordered
