"""A captured slot has one owner until it is published or freed."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
import torch

from spc_sglang.adapter.capture import Capture, CaptureLedger, CapturePlan, Refusal


def request(rid: str, ids: list[int], extra_key: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        rid=rid,
        full_untruncated_fill_ids=array("q", ids),
        extra_key=extra_key,
        cache_salt=None,
    )


def capture(depth: int, slot: int) -> Capture:
    return Capture(0, depth, torch.tensor([slot]))


def test_slot_is_handed_on_exactly_once() -> None:
    one = capture(64, 7)
    assert int(one.take_slot()) == 7
    with pytest.raises(AssertionError):
        one.take_slot()


def test_take_returns_and_forgets() -> None:
    ledger = CaptureLedger()
    req = request("a", [1] * 200)
    ledger.add(req, capture(64, 1))
    ledger.add(req, capture(128, 2))
    assert len(ledger) == 2
    assert [c.depth for c in ledger.take(req)] == [64, 128]
    assert len(ledger) == 0 and ledger.take(req) == []


def test_two_requests_of_one_id_keep_their_own_captures() -> None:
    """Request ids are the client's: a state must never land on another prompt's path."""
    ledger = CaptureLedger()
    one, other = request("same", [1] * 200), request("same", [2] * 200)
    ledger.add(one, capture(64, 1))
    ledger.add(other, capture(128, 2))
    assert [c.depth for c in ledger.take(one)] == [64]
    assert [c.depth for c in ledger.take(other)] == [128]


def test_same_prefix_is_recognised_only_within_a_namespace() -> None:
    ledger = CaptureLedger()
    ledger.add(request("a", [1] * 128 + [2] * 64), capture(128, 1))
    assert ledger.holds_same_prefix(request("b", [1] * 128 + [3] * 64), 128)
    assert not ledger.holds_same_prefix(request("b", [1] * 127 + [3] * 65), 128)
    assert not ledger.holds_same_prefix(request("b", [1] * 300), 64)
    assert not ledger.holds_same_prefix(request("b", [1] * 300, extra_key="tenant"), 128)


def test_revoke_takes_the_latest_planned_first_and_marks_them() -> None:
    ledger = CaptureLedger()
    first, second, third = capture(64, 1), capture(128, 2), capture(64, 3)
    leader = request("a", [1] * 200)
    ledger.add(leader, first)
    ledger.add(leader, second)
    ledger.add(request("b", [2] * 200), third)
    plan = CapturePlan([0, 0], [200, 200], [first, second, third])
    assert [int(slot) for slot in ledger.revoke(2)] == [3, 2]
    assert plan.live() == [first]
    assert [int(slot) for slot in ledger.revoke(5)] == [1]
    assert len(ledger) == 0 and plan.live() == []


def test_plan_fits_only_a_forward_with_its_rows_first() -> None:
    plan = CapturePlan([0, 128], [64, 200])
    assert plan.fits([0, 128, 500], [64, 200, 1])
    assert not plan.fits([0, 64], [64, 200])
    assert not plan.fits([128, 0], [200, 64])
    assert not plan.fits([0], [64])


def test_refused_captures_explain_later_losses() -> None:
    """The deepest one on the prompt, within the namespace and between restore and match."""
    ledger = CaptureLedger()
    first = request("a", [1] * 200)
    for depth in (64, 128, 192):
        ledger.refused(first, depth, Refusal.NO_SLOT)
    ledger.refused(first, 64, Refusal.TOO_CHEAP)
    later = SimpleNamespace(
        origin_input_ids=array("q", [1] * 150 + [2] * 50), extra_key=None, cache_salt=None
    )
    both = {Refusal.NO_SLOT: 128, Refusal.TOO_CHEAP: 64}
    assert ledger.refused_depths(later, 0, 150) == both
    assert ledger.refused_depths(later, 64, 150) == {Refusal.NO_SLOT: 128}
    assert ledger.refused_depths(later, 0, 100) == dict.fromkeys(Refusal, 64)
    assert ledger.refused_depths(later, 128, 150) == {}
    later.extra_key = "tenant"
    assert ledger.refused_depths(later, 0, 150) == {}


def test_a_revoked_capture_counts_as_without_a_slot() -> None:
    ledger = CaptureLedger()
    req = request("a", [1] * 200)
    ledger.add(req, capture(64, 1))
    assert [int(slot) for slot in ledger.revoke(1)] == [1]
    again = SimpleNamespace(origin_input_ids=array("q", [1] * 99), extra_key=None, cache_salt=None)
    assert ledger.refused_depths(again, 0, 99) == {Refusal.NO_SLOT: 64}
