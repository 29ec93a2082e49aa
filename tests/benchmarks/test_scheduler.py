"""The clock books each step once, the stream repeats itself, and a small run passes its checks."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.scheduler.clock import Clock
from benchmarks.scheduler.stream import Shape, long_prompts, prompts
from tests.probe import facts


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_nested_step_is_not_booked_twice() -> None:
    clock = Clock()
    clock.next_request()
    with clock.step("outer"):
        spin(0.002)
        with clock.step("inner"):
            spin(0.02)
    row = clock.rows[0]
    assert row["inner"] >= 20_000 and 2_000 <= row["outer"] < 20_000


def test_streams_are_reproducible_and_within_their_lengths() -> None:
    shape = Shape(most_tokens=1500)
    first, second = (list(islice(prompts(shape, seed=3), 50)) for _ in range(2))
    assert first == second
    assert max(map(len, first)) <= 1500
    assert [len(prompt) for prompt in islice(long_prompts(4096, seed=1), 3)] == [4096] * 3


@pytest.mark.sglang
def test_a_small_run_passes_its_checks(tmp_path: Path) -> None:
    """Both on a pool of 40 slots, in turns: checks around every turn, every step timed."""
    sizes = ["--requests", "20", "--rounds", "2", "--slots", "40"]
    found = facts("benchmarks.scheduler", *sizes, "--output", str(tmp_path / "result.json"))
    stock, spc = found["stock"], found["spc"]
    assert (stock["tree_core"], spc["tree_core"]) == ("RustUnifiedTreeCore", "SpcTreeCore")
    assert stock["usual"]["requests"] == spc["usual"]["requests"] == 20
    assert all(spc["usual"]["us"][step]["mean"] > 0 for step in ("match", "plan", "insert"))
    assert 0 < spc["usual"]["us"]["policy"]["median"] < spc["usual"]["us"]["sum"]["median"]
    assert stock["usual"]["us"]["plan"]["mean"] == stock["usual"]["us"]["policy"]["mean"] == 0
    assert found["sum_over_stock"]["least"] <= found["sum_over_stock"]["most"]
