"""One cache in one process: fills it, then times requests by order.

python -m benchmarks.scheduler.worker stock|spc MODELDIR SLOTS

Reads orders from stdin, one a line: a part and a number of requests. The first is `begin`, with
the requests to have served in all before the others. Parts: `usual`, `long` (microseconds by
step), `policy`, `long_policy` (of the policy within them, timed apart so that its clock slows no
step), `evict_one` (by state evicted). Answers each with one JSON line, and the start with one as
well. Trees and slots are checked before and after every order.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.scheduler.clock import Clock
from benchmarks.scheduler.stream import Shape, long_prompts, prompts
from benchmarks.scheduler.world import Sizes, World, load_sglang

LONG_TOKENS = 131_072
KV_TOKENS_A_SLOT = 560
"""Room for the text of all states: short prompts evict states, long ones KV as well."""


@dataclass(slots=True)
class _TimedCaptures:
    """A capture policy whose proposals are booked to a clock."""

    captures: Any
    clock: Clock

    def proposals(self, extend: Any) -> Any:
        with self.clock.step("policy"):
            return self.captures.proposals(extend)


def watch_steps(world: World, clock: Clock) -> None:
    """Book the steps of every request from now on."""
    cache = world.cache
    clock.watch(cache, "match_prefix", "match")
    clock.watch(cache, "checkpoint", "insert")
    clock.watch(cache, "_evict", "evict")
    clock.watch(world.kv, "free", "KV free list")
    if hasattr(cache, "planner"):
        clock.watch(cache.planner, "before_extend", "plan")
        clock.watch(cache.planner, "plan_extend", "plan")
        clock.watch(cache, "_publish", "publish")
        clock.watch(cache.priced, "take_cheapest", "evict")


def watch_policy(world: World, clock: Clock) -> Callable[[], None]:
    """Book the policy within the steps; the result ends it. Stock has none."""
    cache = world.cache
    if not hasattr(cache, "planner"):
        return lambda: None
    captures = cache.planner.captures
    cache.planner.captures = _TimedCaptures(captures, clock)
    ends = [
        clock.watch(cache.priced, "look_up", "policy"),
        clock.watch(cache.priced.retention, "choose_victim", "policy"),
        lambda: setattr(cache.planner, "captures", captures),
    ]
    return lambda: [end() for end in ends] and None


def begin(world: World, ids: array[int], extra_key: str | None = None) -> Any:
    """The scheduler's part of a request from its match to the end of its prefill."""
    req = world.request(ids, extra_key)
    world.admit(req)
    batch = world.batch(req)
    batch.prepare_for_extend()
    plan = getattr(batch, "_spc_capture_plan", None)
    for capture in [] if plan is None else plan.captures:
        capture.written = True  # what the forward would confirm
    return req


def serve(world: World, ids: array[int]) -> int:
    """The scheduler's part of one request, from match to release; returns tokens resumed."""
    req = begin(world, ids)
    resumed = int(req.prefix_len)
    world.store(req)
    world.finish(req)
    return resumed


def fill(world: World, stream: Iterator[array[int]], most_requests: int) -> int:
    """Serve until no slot is free, and a fifth more; returns the number of requests."""
    served = 0
    while world.rows.mamba_allocator.available_size() > 8 and served < most_requests:
        serve(world, next(stream))
        served += 1
    for ids in islice(stream, served // 5):
        serve(world, ids)
    return served + served // 5


def garbage_seconds() -> float:
    """One full collection; afterwards what is alive is left out of later ones.

    A pause of half a second would fall on some step at random; it is reported instead.
    """
    start = time.perf_counter()
    gc.collect()
    gc.freeze()
    return time.perf_counter() - start


class Bench:
    """A filled cache and what is measured on it."""

    def __init__(self, world: World, slots: int) -> None:
        self.world = world
        self.clock = Clock()
        self._most = 4 * slots
        self._usual = prompts(Shape(), seed=1)
        self._long = long_prompts(LONG_TOKENS, seed=2)
        self.filled_by = fill(world, self._usual, self._most)
        world.check()

    def begin(self, requests: int) -> dict[str, Any]:
        """Serve up to this many requests in all, so that both caches go on from the same one."""
        for ids in islice(self._usual, requests - self.filled_by):
            serve(self.world, ids)
        answer = {"served": requests, "live_states": self.world.live_states}
        garbage = garbage_seconds()
        watch_steps(self.world, self.clock)
        return {**answer, "garbage_collection_s": garbage}

    def measure(self, part: str, count: int) -> dict[str, Any]:
        """The answer to one order."""
        self.clock.rows.clear()
        answers = {
            "begin": lambda: self.begin(count),
            "usual": lambda: self._steps(self._usual, count),
            "long": lambda: self._steps(self._long, count),
            "policy": lambda: self._policy(self._usual, count),
            "long_policy": lambda: self._policy(self._long, count),
            "evict_one": lambda: self._evict_one(count),
        }
        answer: dict[str, Any] = answers[part]()
        self.world.check()
        return answer

    def _steps(self, stream: Iterator[array[int]], count: int) -> dict[str, Any]:
        resumed = 0
        for ids in islice(stream, count):
            self.clock.next_request()
            with self.clock.step("rest"):
                resumed += serve(self.world, ids)
        return {"rows": list(self.clock.rows), "resumed_tokens": resumed}

    def _policy(self, stream: Iterator[array[int]], count: int) -> dict[str, Any]:
        policy = Clock()
        end = watch_policy(self.world, policy)
        for ids in islice(stream, count):
            policy.next_request()
            serve(self.world, ids)
        end()
        return {"rows": [{"policy": row.get("policy", 0.0)} for row in policy.rows]}

    def _evict_one(self, count: int) -> dict[str, Any]:
        """One state at a time; freeing KV left out. Fills the pool again afterwards."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        for _ in range(count):
            self.clock.next_request()
            self.world.cache.evict(EvictParams(num_tokens=0, mamba_num=1))
        rows = [{"evict": row["evict"]} for row in self.clock.rows]
        fill(self.world, self._usual, self._most)
        return {"rows": rows}


def main() -> None:
    """Fill, say so, and answer orders until stdin ends."""
    backend, model, slots = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    load_sglang()
    torch.set_num_threads(1)
    kv_tokens = max(slots * KV_TOKENS_A_SLOT, 3 * LONG_TOKENS)
    sizes = Sizes(slots, kv_tokens, LONG_TOKENS + 64)
    world = World(model, sizes, None if backend == "stock" else backend)
    bench = Bench(world, slots)
    start = {
        "tree_core": type(world.cache.tree_core).__name__,
        "filled_by_requests": bench.filled_by,
    }
    print(json.dumps(start), flush=True)
    for order in sys.stdin:
        part, count = order.split()
        print(json.dumps(bench.measure(part, int(count))), flush=True)


if __name__ == "__main__":
    main()
