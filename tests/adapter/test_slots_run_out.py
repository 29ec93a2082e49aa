"""An exhausted state pool: requests wait or store later, where SGLang stops the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spc_sglang.adapter.capture import CaptureLedger
from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.slot_gate import SlotGate
from spc_sglang.planning.counters import CacheCounters
from tests.probe import facts
from tests.server.test_configurations import MODELS

TRACKING_SLOTS = 2


class Pool:
    """A gate over a fake cache with free and evictable slots, and with `rows` for requests."""

    def __init__(
        self, free: int, evictable: int, queue: int, running: int = 1, rows: int = 9
    ) -> None:
        pool = SimpleNamespace(
            mamba_initial_tracking_slots=TRACKING_SLOTS, available_size=lambda: rows
        )
        cache = SimpleNamespace(req_to_token_pool=pool, idle_slots=lambda: free + evictable)
        self.counters = CacheCounters()
        self.gate = SlotGate(cache, CaptureLedger(), self.counters)
        self.queue = [SimpleNamespace(rid=n) for n in range(queue)]
        self.scheduler = SimpleNamespace(
            waiting_queue=list(self.queue),
            chunked_req=None,
            last_batch=None,
            enable_priority_scheduling=False,
        )
        self.running = SimpleNamespace(reqs=[object()] * running)

    def round(self) -> int:
        """Requests that the scheduler sees; none is admitted."""
        with self.gate.holding_back(self.scheduler, self.running):
            seen = len(self.scheduler.waiting_queue)
        assert self.scheduler.waiting_queue == self.queue
        return seen


@pytest.mark.parametrize(
    ("free", "evictable", "seen"), [(4, 0, 1), (1, 3, 1), (3, 0, 0), (6, 6, 3), (40, 0, 5)]
)
def test_only_those_that_find_slots_are_seen(free: int, evictable: int, seen: int) -> None:
    """A request takes one slot for its state, two to track, and locks what it resumes from."""
    pool = Pool(free, evictable, queue=5)
    assert pool.round() == pool.round() == seen
    assert pool.counters.waits_for_slots == 5 - seen  # each counts once


def test_where_the_rows_are_the_limit_nobody_waits_for_slots() -> None:
    pool = Pool(8, 0, queue=5, rows=2)
    assert pool.round() == 5 and pool.counters.waits_for_slots == 0


def test_nobody_waits_for_an_idle_server() -> None:
    assert Pool(0, 0, queue=3, running=0).round() == 1


def test_priority_decides_who_waits() -> None:
    """SGLang sorts the queue within the round, so who is held must not go by arrival."""
    pool = Pool(4, 0, queue=3)
    pool.scheduler.enable_priority_scheduling = True
    pool.scheduler.policy = SimpleNamespace(
        priority_sign=1,
        _sort_by_priority_and_fcfs=lambda queue, sign: queue.sort(key=lambda req: -sign * req.rid),
    )
    with pool.gate.holding_back(pool.scheduler, pool.running):
        assert [req.rid for req in pool.scheduler.waiting_queue] == [2]


def test_a_chunked_request_keeps_one_slot() -> None:
    pool = Pool(4, 0, queue=2)
    pool.scheduler.chunked_req = object()
    assert pool.round() == 0


def probe(backend: str) -> Any:
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    return facts("tests.adapter.exhausted_pool_probe", backend, str(model))


@pytest.mark.sglang
def test_without_a_slot_the_end_is_stored_later() -> None:
    """First our pending captures give a slot back, then nobody has one; SGLang asserts twice."""
    assert probe("stock") == dict.fromkeys(("first", "second"), "Can not alloc mamba cache")
    ours = probe("spc")
    assert (ours["first"], ours["second"]) == ("stored", "stored")
    assert ours["counters"]["revoked"] == 1 and ours["counters"]["ends_not_stored"] == 1
    assert ours["stored_later"] == 1472


@pytest.mark.sglang
def test_the_last_slot_moves_on_with_the_request() -> None:
    """Nobody has a slot but the state that the request resumed from: that one is given up."""
    ours = probe("spc")
    assert (ours["continued"], ours["own_state_given_up"]) == ("stored", [0, 2944])
