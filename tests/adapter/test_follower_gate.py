"""Who waits in a scheduling round, for whom, and that nobody waits for ever."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from spc_sglang.adapter import follower_gate
from spc_sglang.adapter.capture import CaptureLedger
from spc_sglang.adapter.follower_gate import FollowerGate


def request(rid: str, ids: list[int], **more: Any) -> SimpleNamespace:
    values = {
        "rid": rid,
        "origin_input_ids": array("q", ids),
        "full_untruncated_fill_ids": array("q", ids),
        "extra_key": None,
        "cache_salt": None,
        "multimodal_inputs": None,
        "retracted_stain": False,
        "return_logprob": False,
        "logprob_start_len": -1,
    }
    return SimpleNamespace(**values | more)


def scheduler(queue: list[Any]) -> SimpleNamespace:
    return SimpleNamespace(waiting_queue=queue, enable_priority_scheduling=False, chunked_req=None)


class Round:
    """One gate over a fake scheduler; `resume` is what each request would resume from."""

    def __init__(self, queue: list[Any], resume: dict[str, int] | None = None) -> None:
        self.resume = resume or {}
        lookahead = SimpleNamespace(resume_depth=lambda req: self.resume.get(req.rid, 0))
        self.gate = FollowerGate(lookahead, CaptureLedger(), grid=64)  # type: ignore[arg-type]
        self.scheduler = scheduler(queue)
        self.running = SimpleNamespace(reqs=[], batch_is_full=False)

    def admit(self, count: int = 99) -> list[str]:
        """Admit the first `count` of what the gate lets through; returns their ids."""
        with self.gate.holding_back(self.scheduler, self.running):
            admitted = self.scheduler.waiting_queue[:count]
            for req in admitted:
                self.gate.admitted(req)
            self.scheduler.waiting_queue = self.scheduler.waiting_queue[count:]
        self.running.reqs += admitted
        return [req.rid for req in admitted]


def group(size: int, shared: int, tail: int = 100) -> list[Any]:
    return [request(f"g{n}", [1] * shared + [100 + n] * tail) for n in range(size)]


def test_followers_wait_for_the_leader_and_then_go() -> None:
    one = Round(group(3, 1000))
    assert one.admit() == ["g0"]
    assert one.gate.promised_by(one.running.reqs[0]) == (960,)
    assert one.admit() == []
    one.gate.stored(one.running.reqs[0], up_to=960)
    one.resume.update(g1=960, g2=960)
    assert one.admit() == ["g1", "g2"] and one.scheduler.waiting_queue == []


def test_unrelated_requests_never_wait() -> None:
    queue = [request("a", [1] * 900), request("b", [2] * 900), request("c", [1] * 200 + [3] * 900)]
    assert Round(queue).admit() == ["a", "b", "c"]


def test_a_request_that_resumes_as_deep_already_does_not_wait() -> None:
    assert Round(group(2, 1000), {"g1": 960 - 255}).admit() == ["g0", "g1"]
    assert Round(group(2, 1000), {"g1": 960 - 256}).admit() == ["g0"]


def test_followers_go_when_the_leader_ends_without_storing() -> None:
    one = Round(group(2, 1000))
    one.admit()
    one.gate.released(one.running.reqs[0])
    assert one.admit() == ["g1"]


def test_nobody_waits_longer_than_the_limit() -> None:
    one = Round(group(2, 1000))
    rounds = [one.admit() for _ in range(follower_gate.MOST_ROUNDS + 1)]
    assert rounds[0] == ["g0"] and rounds[-1] == ["g1"] and not any(rounds[1:-1])


def test_an_idle_server_holds_nobody_back() -> None:
    """With nothing else to run, waiting would be waiting for nothing."""
    one = Round(group(2, 1000))
    one.admit()
    one.running.reqs.clear()
    assert one.admit() == ["g1"]


@pytest.mark.parametrize(
    "more",
    [
        {"extra_key": "tenant"},
        {"return_logprob": True, "logprob_start_len": 0},
        {"multimodal_inputs": object()},
        {"retracted_stain": True},
    ],
)
def test_requests_that_cannot_share_are_left_alone(more: dict[str, Any]) -> None:
    leader, follower = group(2, 1000)
    assert Round([leader, request("f", list(follower.origin_input_ids), **more)]).admit() == [
        "g0",
        "f",
    ]


def test_priority_order_and_full_batches_are_left_alone() -> None:
    one = Round(group(2, 1000))
    one.scheduler.enable_priority_scheduling = True
    assert one.admit() == ["g0", "g1"]
    full = Round(group(2, 1000))
    full.running.batch_is_full = True
    assert full.admit() == ["g0", "g1"]


def test_order_survives_and_new_arrivals_go_last() -> None:
    one = Round([*group(3, 1000), request("z", [9] * 500)])
    assert one.admit(count=1) == ["g0"]
    one.scheduler.waiting_queue.append(request("new", [7] * 500))
    assert [req.rid for req in one.scheduler.waiting_queue] == ["g1", "g2", "z", "new"]
