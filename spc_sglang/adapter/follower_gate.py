"""Lets the followers of a group resume from what its leader is about to store.

Requests of one group that arrive together would all compute the text they share. Here the
first of them, the leader, is asked to capture where the others leave its prompt, and those wait
for its checkpoint: in one batch they would finish after the sum of all prompts, now after the
leader's and their own rest. A request waits only for a leader that runs or is admitted before
it, only if that saves `LEAST_GAIN_TOKENS`, and for a bounded number of scheduling rounds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spc_sglang.adapter.capture import CaptureLedger, namespace_of
from spc_sglang.adapter.withheld import withheld

if TYPE_CHECKING:
    from spc_sglang.adapter.lookahead import QueueLookahead

LEAST_GAIN_TOKENS = 256
MOST_ROUNDS = 64
MOST_REQUESTS = 16


class FollowerGate:
    """Which waiting requests stay out of one scheduling round."""

    def __init__(self, lookahead: QueueLookahead, ledger: CaptureLedger, grid: int) -> None:
        self._lookahead = lookahead
        self._ledger = ledger
        self._grid = grid
        self._demands: dict[int, set[int]] = {}
        self._promises: dict[int, tuple[Any, set[int]]] = {}
        self.held_requests = 0

    # ---- the scheduler's side

    @contextmanager
    def holding_back(self, scheduler: Any, running: Any) -> Iterator[None]:
        """Take followers out of the waiting queue while a batch is formed from it."""
        queue = scheduler.waiting_queue
        held = self._select(queue) if self._may_hold(scheduler, running) else []
        ready = [req for req in queue if req not in held]
        if not (ready or running.reqs or scheduler.chunked_req is not None):
            held = []  # nobody would work
        with withheld(scheduler, held):
            yield

    @staticmethod
    def _may_hold(scheduler: Any, running: Any) -> bool:
        """A full batch admits nobody, and an order by priority is not ours to change."""
        return not running.batch_is_full and not scheduler.enable_priority_scheduling

    def _select(self, queue: Sequence[Any]) -> list[Any]:
        self._demands = {}
        held: list[Any] = []
        leaders: list[Any] = []
        for req in queue[:MOST_REQUESTS]:
            if self._holds(req, leaders):
                held.append(req)
            else:
                leaders.append(req)
        return held

    def _holds(self, req: Any, leaders: Sequence[Any]) -> bool:
        last = len(req.origin_input_ids) - 1
        matches_less = req.return_logprob and 0 <= req.logprob_start_len < last
        if matches_less or req.multimodal_inputs is not None or req.retracted_stain:
            return False
        rounds = getattr(req, "_spc_rounds_held", 0)
        if rounds >= MOST_ROUNDS:
            return False
        promised = self._promised(req)
        leader, depth = self._leader_of(req, leaders)
        if max(promised, depth) < LEAST_GAIN_TOKENS:
            return False
        wanted = self._lookahead.resume_depth(req) + LEAST_GAIN_TOKENS
        if max(promised, depth) < wanted:
            return False
        if promised < wanted:
            self._demands.setdefault(id(leader), set()).add(depth)
        self.held_requests += rounds == 0
        req._spc_rounds_held = rounds + 1
        return True

    def _promised(self, req: Any) -> int:
        """The deepest position of this prompt that a running request is about to store."""
        depths = [0]
        for leader, promised in self._promises.values():
            shared = _shared_tokens(req, leader)
            depths += [depth for depth in promised if depth <= shared]
        depths += self._ledger.depths_shared_with(req)
        return max(depths)

    def _leader_of(self, req: Any, leaders: Sequence[Any]) -> tuple[Any, int]:
        """The waiting request before this one that shares most, and the grid depth they share."""
        shared, leader = max(
            ((_shared_tokens(req, leader), leader) for leader in leaders),
            key=lambda pair: pair[0],
            default=(0, None),
        )
        return leader, shared // self._grid * self._grid

    # ---- the cache's side

    def admitted(self, req: Any) -> tuple[int, ...]:
        """Depths that followers ask of a request that is being admitted; they become promises."""
        depths = self._demands.pop(id(req), set())
        if depths:
            self._promises[id(req)] = (req, set(depths))
        return self.promised_by(req)

    def promised_by(self, req: Any) -> tuple[int, ...]:
        """What a request in flight still owes, increasing."""
        promise = self._promises.get(id(req))
        return () if promise is None else tuple(sorted(promise[1]))

    def stored(self, req: Any, up_to: int) -> None:
        """The request's prefill was inserted up to a depth; nothing above it is owed any more."""
        promise = self._promises.get(id(req))
        if promise is None:
            return
        left = {depth for depth in promise[1] if depth > up_to}
        if left:
            self._promises[id(req)] = (req, left)
        else:
            del self._promises[id(req)]

    def released(self, req: Any) -> None:
        """The request ended or was retracted; whoever waited for it goes on."""
        self._promises.pop(id(req), None)


def _shared_tokens(req: Any, other: Any) -> int:
    """Tokens that a prompt can take over from another: the common prefix, less its last token."""
    if namespace_of(req) != namespace_of(other):
        return 0
    ids: array[int] = req.origin_input_ids
    text: array[int] = other.origin_input_ids
    low, high = 0, min(len(ids) - 1, len(text))
    if ids[:LEAST_GAIN_TOKENS] != text[:LEAST_GAIN_TOKENS]:
        return 0  # the usual case, cheaply: too little to wait for
    while low < high:
        middle = (low + high + 1) // 2
        if ids[low:middle] == text[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
