"""Whoever waits long enough goes first; the others keep the order they have."""

from __future__ import annotations

from types import SimpleNamespace

from spc_sglang.adapter.queue_order import MOST_ADMISSIONS, put_oldest_first


def test_a_request_is_passed_over_at_most_so_often() -> None:
    """Always last by its match, it is served as soon as the limit of admissions is over."""
    cold = SimpleNamespace(name="cold")
    for admissions in range(MOST_ADMISSIONS):
        queue = [SimpleNamespace(name="warm"), cold]
        put_oldest_first(queue, admissions)
        assert queue[0].name == "warm"
    queue = [SimpleNamespace(name="warm"), cold]
    put_oldest_first(queue, MOST_ADMISSIONS)
    assert [req.name for req in queue] == ["cold", "warm"]


def test_the_oldest_goes_first_and_ties_keep_their_order() -> None:
    queue = [SimpleNamespace(name=name) for name in "abcd"]
    put_oldest_first(queue[2:3], 0)
    put_oldest_first(queue[1:2], 1)
    put_oldest_first(queue[3:], 1)
    put_oldest_first(queue, MOST_ADMISSIONS + 1)
    assert [req.name for req in queue] == ["c", "b", "d", "a"]
