"""One cache in one process: fills it, times requests, prints one JSON line.

python -m benchmarks.scheduler.worker stock|spc MODELDIR REQUESTS SLOTS [PROFILE]
"""

from __future__ import annotations

import cProfile
import gc
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.scheduler.clock import Clock
from benchmarks.scheduler.stream import Shape, long_prompts, prompts
from benchmarks.scheduler.world import Sizes, World, load_sglang

LONG_TOKENS = 131_072
KV_TOKENS_A_SLOT = 400
"""Room for the text of all states: short prompts evict states, long ones KV as well."""


@dataclass(slots=True)
class _TimedCaptures:
    """A capture policy whose proposals are booked to a clock."""

    captures: Any
    clock: Clock

    def proposals(self, extend: Any) -> Any:
        with self.clock.step("policy"):
            return self.captures.proposals(extend)


def watch(world: World) -> tuple[Clock, Clock]:
    """Clocks of the steps and of the policy within them."""
    steps, policy = Clock(), Clock()
    cache = world.cache
    steps.watch(cache, "match_prefix", "match")
    steps.watch(cache, "checkpoint", "insert")
    steps.watch(cache, "_evict", "evict")
    steps.watch(world.kv, "free", "KV free list")
    if hasattr(cache, "planner"):
        steps.watch(cache.planner, "before_extend", "plan")
        steps.watch(cache.planner, "plan_extend", "plan")
        steps.watch(cache, "_publish", "publish")
        policy.watch(cache.priced, "look_up", "policy")
        policy.watch(cache.priced.retention, "choose_victim", "policy")
        cache.planner.captures = _TimedCaptures(cache.planner.captures, policy)
    return steps, policy


def serve(world: World, ids: array[int]) -> int:
    """The scheduler's part of one request, from match to release; returns tokens resumed."""
    from sglang.srt.mem_cache.common import checkpoint_kv_cache

    req = world.request(ids)
    world.admit(req)
    resumed = int(req.prefix_len)
    batch = world.batch(req)
    batch.prepare_for_extend()
    plan = getattr(batch, "_spc_capture_plan", None)
    for capture in [] if plan is None else plan.captures:
        capture.written = True  # what the forward would confirm
    checkpoint_kv_cache(req, world.cache)
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


def measure(world: World, clocks: tuple[Clock, Clock], stream: Iterable[array[int]]) -> Any:
    """Microseconds by step and of the policy, one entry a request."""
    for clock in clocks:
        clock.rows.clear()
    resumed = 0
    for ids in stream:
        for clock in clocks:
            clock.next_request()
        with clocks[0].step("rest"):
            resumed += serve(world, ids)
    policy = [row.get("policy", 0.0) for row in clocks[1].rows]
    return {"steps": list(clocks[0].rows), "policy": policy, "resumed_tokens": resumed}


def evict_states(world: World, clock: Clock, count: int) -> list[float]:
    """Microseconds for each of `count` states, one evicted at a time; freeing KV left out."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    clock.rows.clear()
    for _ in range(count):
        clock.next_request()
        world.cache.evict(EvictParams(num_tokens=0, mamba_num=1))
    return [row["evict"] for row in clock.rows]


def garbage_seconds() -> float:
    """One full collection; afterwards what is alive is left out of later ones.

    A pause of half a second would fall on some step at random; it is reported instead.
    """
    start = time.perf_counter()
    gc.collect()
    gc.freeze()
    return time.perf_counter() - start


def main() -> None:
    """Fill, check, measure, check; the result is the last line."""
    backend, model, requests, slots = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5])
    load_sglang()
    torch.set_num_threads(1)
    kv_tokens = max(slots * KV_TOKENS_A_SLOT, 3 * LONG_TOKENS)
    sizes = Sizes(slots, kv_tokens, LONG_TOKENS + 64)
    world = World(model, sizes, None if backend == "stock" else backend)
    stream = prompts(Shape(), seed=1)
    served = fill(world, stream, 4 * slots)
    world.check()
    collection = garbage_seconds()
    clocks = watch(world)
    usual = _profiled(sys.argv[5:], lambda: measure(world, clocks, islice(stream, requests)))
    live = world.live_states
    world.check()
    evict_one = evict_states(world, clocks[0], requests // 2)
    world.check()
    fill(world, stream, 4 * slots)
    long = measure(world, clocks, islice(long_prompts(LONG_TOKENS, seed=2), requests // 20))
    world.check()
    result = {
        "tree_core": type(world.cache.tree_core).__name__,
        "filled_by_requests": served,
        "live_states": live,
        "garbage_collection_s": collection,
        "usual": usual,
        "long": long,
        "evict_one": evict_one,
    }
    print(json.dumps(result))


def _profiled(path: list[str], run: Callable[[], Any]) -> Any:
    if not path:
        return run()
    with cProfile.Profile() as profile:
        result = run()
    profile.dump_stats(path[0])
    return result


if __name__ == "__main__":
    main()
