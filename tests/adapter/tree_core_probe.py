"""Runs in a process of its own: one request stream, described after every request.

python -m tests.adapter.tree_core_probe shorter|upstream MODELDIR KV_EVICTION [--events]

Up to three requests run at once; some leave without storing anything. With --events the tree also
publishes what happens to its KV.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.scheduler.worker import begin, serve
from benchmarks.scheduler.world import Sizes, World, load_sglang

REQUESTS = 300
MOST_RUNNING = 3
GIVEN_UP = 0.2
IDLE_EVERY = 20
OF_A_TENANT = 0.3
"""These requests have an extra key, which shares nothing with the others."""
SIZES = Sizes(slots=24, kv_tokens=12_000, context_tokens=4096)


def main() -> None:
    which, model, kv_eviction = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    kv_events = "--events" in sys.argv
    load_sglang()
    from sglang.srt.mem_cache.unified_cache.components import ComponentType

    if which == "upstream":
        take_the_long_ways(kv_eviction)
    world = World(model, SIZES, "spc", kv_eviction=kv_eviction, kv_events=kv_events)
    rng, running, facts = random.Random(5), [], []
    for number, ids in enumerate(prompts(random.Random(7)), start=1):
        running.append(begin(world, ids, "tenant" if rng.random() < OF_A_TENANT else None))
        resumed = int(running[-1].prefix_len)
        while len(running) == MOST_RUNNING or (running and rng.random() < 0.5):
            end(world, rng, running.pop(rng.randrange(len(running))))
        events = [event_facts(event) for event in world.cache.take_events()]
        facts.append([resumed, events, *described(world)])
        if number % IDLE_EVERY == 0:
            while running:
                end(world, rng, running.pop())
            world.check()
    found = {"core": type(world.cache.tree_core).__name__, "facts": facts}
    found["kept"] = kept_prefixes(world)
    found["shared_entry_written"] = shared_entry_written()
    kv = world.cache.components[ComponentType.FULL]
    world.cache.reset()
    found["leaves_remembered_after_flush"] = len(getattr(kv, "_leaves", ()))
    print(json.dumps(found))


def take_the_long_ways(kv_eviction: str) -> None:
    """SGLang's Python tree core, inserts from its root, and its own eviction of KV."""
    from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore

    from spc_sglang.adapter import tree_core
    from spc_sglang.adapter.below_own_node import BelowOwnNode
    from spc_sglang.adapter.radix_cache import SpcRadixCache

    tree_core.select = lambda params: setattr(params, "tree_core_backend", "python")
    UnifiedTreeCore._new_node = tree_core.SpcTreeCore._new_node  # the policy watches these only
    BelowOwnNode.takes_short_ways = property(lambda _: kv_eviction == "lru")
    BelowOwnNode._stored_below = stored_from_the_root
    SpcRadixCache._evicts_itself = lambda _, params: params.num_tokens == 0


def stored_from_the_root(cache: Any, req: Any, length: int, params: Any) -> Any:
    """What `_stored_below` must come to, by SGLang's insert, read-out, unlock and lock."""
    from sglang.srt.mem_cache.radix_cache import RadixKey

    kv, pool = req.kv, cache.req_to_token_pool
    key = RadixKey(req.full_untruncated_fill_ids[:length], req.extra_key)
    value = pool.req_to_token[kv.req_pool_idx, :length].to(torch.int64, copy=True)
    own = kv.cache_protected_len
    result = cache.insert(replace(params, key=key, value=value, prev_prefix_len=own))
    indices = cache.path_device_indices(result.last_device_node)
    pool.write((kv.req_pool_idx, slice(own, length)), indices[own:])
    cache.unlock(req.lock)
    req.last_node = result.last_device_node
    req.lock = cache.lock(req.last_node)
    kv.cache_protected_len = kv.cache_inserted_len = length
    return result


def end(world: World, rng: random.Random, req: Any) -> None:
    if rng.random() < GIVEN_UP:
        world.give_up(req)
        return
    world.store(req)
    world.finish(req)


def shared_entry_written() -> bool:
    """Whether anybody wrote to what stands for components that the tree does not have."""
    from spc_sglang.adapter.tree_node import _ABSENT, NodeData

    fresh = NodeData()
    return any(getattr(_ABSENT, name) != getattr(fresh, name) for name in NodeData.__slots__)


def event_facts(event: Any) -> list[Any]:
    """A KV event for a router: its kind, the blocks, and for a stored one parent and tokens."""
    parts = (getattr(event, name, None) for name in ("block_hashes", "parent_block_hash"))
    return [type(event).__name__, *parts, [int(i) for i in getattr(event, "token_ids", [])]]


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
