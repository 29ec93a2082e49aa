"""The clock books each step once, the stream repeats itself, and a small run passes its checks."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from benchmarks.scheduler.clock import Clock
from benchmarks.scheduler.stream import Shape, long_prompts, prompts
from spc_sglang.adapter.cpu.models import build_model
from tests.probe import facts
from tests.server.test_configurations import MODELS


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
def test_a_small_run_passes_its_checks() -> None:
    """Ours on a pool of 40 slots: checks before and after, every step timed."""
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    found = facts("benchmarks.scheduler.worker", "spc", str(model), "20", "40")
    assert found["tree_core"] == "SpcTreeCore"
    assert len(found["usual"]["steps"]) == 20 and len(found["evict_one"]) == 10
    assert {"match", "plan", "insert", "evict"} <= {
        name for r in found["usual"]["steps"] for name in r
    }
