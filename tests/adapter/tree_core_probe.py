"""Runs in a process of its own: one request stream, described after every request.

python -m tests.adapter.tree_core_probe shorter|upstream MODELDIR KV_EVICTION

Up to three requests run at once; some leave without storing anything.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scheduler.worker import begin, serve
from benchmarks.scheduler.world import Sizes, World, load_sglang

REQUESTS = 300
MOST_RUNNING = 3
GIVEN_UP = 0.2
IDLE_EVERY = 20
SIZES = Sizes(slots=24, kv_tokens=12_000, context_tokens=4096)


def main() -> None:
    which, model, kv_eviction = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    load_sglang()
    from sglang.srt.mem_cache.unified_cache.components import ComponentType

    from spc_sglang.adapter import tree_core

    if which == "upstream":
        tree_core.select = lambda params: setattr(params, "tree_core_backend", "python")
    world = World(model, SIZES, "spc", kv_eviction=kv_eviction)
    rng, running, facts = random.Random(5), [], []
    for number, ids in enumerate(prompts(random.Random(7)), start=1):
        running.append(begin(world, ids))
        resumed = int(running[-1].prefix_len)
        while len(running) == MOST_RUNNING or (running and rng.random() < 0.5):
            end(world, rng, running.pop(rng.randrange(len(running))))
        facts.append([resumed, *described(world)])
        if number % IDLE_EVERY == 0:
            while running:
                end(world, rng, running.pop())
            world.check()
    found = {"core": type(world.cache.tree_core).__name__, "facts": facts}
    found["kept"] = kept_prefixes(world)
    kv = world.cache.components[ComponentType.FULL]
    world.cache.reset()
    found["leaves_remembered_after_flush"] = len(getattr(kv, "_leaves", ()))
    print(json.dumps(found))


def end(world: World, rng: random.Random, req: Any) -> None:
    if rng.random() < GIVEN_UP:
        world.give_up(req)
        return
    world.store(req)
    world.finish(req)


def kept_prefixes(world: World) -> list[int]:
    """Tokens left of two prefixes when room is needed; a request on the first one stored last.

    The requests that hold the prefixes then leave without a trace.
    """
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    first, second = (array("q", [token] * 640) for token in (11, 12))
    more = array("q", range(20, 276))
    for ids in (first, second):
        serve(world, ids)
    storing = begin(world, first + more)
    holding = [begin(world, head + more[:200][::-1]) for head in (first, second)]
    world.store(storing)
    world.finish(storing)
    world.cache.evict(EvictParams(num_tokens=world.cache.full_evictable_size()))
    for req in holding:
        world.give_up(req)
    world.cache.evict(EvictParams(num_tokens=1))
    keys = [RadixKey(ids) for ids in (first, second)]
    return [world.cache.tree_core.match_full_device_prefix(key)[0] for key in keys]


def prompts(rng: random.Random) -> Iterator[array[int]]:
    """Conversations, forks at any token, and new texts, of few tokens so that some agree."""
    earlier: list[list[int]] = [[]]
    for _ in range(REQUESTS):
        head = rng.choice(earlier[-12:])
        if rng.random() < 0.4:
            head = head[: rng.randint(0, len(head))]
        prompt = head[:2500] + rng.choices(range(3), k=rng.randint(1, 400))
        earlier.append(prompt)
        yield array("q", prompt)


def described(world: World) -> list[Any]:
    """The tree, every node with its tokens, KV indices and state; leaves; free slots and KV."""
    cache = world.cache
    core = cache.tree_core
    nodes = []
    stack = [((), core.root_node)]
    while stack:
        path, node = stack.pop()
        for child in node.children.values():
            below = (*path, *child.key.token_ids)
            values = [data.value for data in child.component_data]
            kept = [None if value is None else value.tolist() for value in values]
            leaf = child in core.evictable_device_leaves
            nodes.append([hash(below), len(below), kept, leaf])
            stack.append((below, child))
    sizes = [world.rows.mamba_allocator.available_size(), world.kv.available_size()]
    return [sorted(nodes, key=str), sizes, cache.counters.as_dict()["published"]]


if __name__ == "__main__":
    main()
