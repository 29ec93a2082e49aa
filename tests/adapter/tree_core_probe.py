"""Runs in a process of its own: one request stream, described after every request.

python -m tests.adapter.tree_core_probe shorter|upstream MODELDIR KV_EVICTION
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scheduler.worker import serve
from benchmarks.scheduler.world import Sizes, World, load_sglang

REQUESTS = 200
SIZES = Sizes(slots=24, kv_tokens=12_000, context_tokens=4096)


def main() -> None:
    which, model, kv_eviction = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    load_sglang()
    from spc_sglang.adapter import tree_core

    if which == "upstream":
        tree_core.select = lambda params: setattr(params, "tree_core_backend", "python")
    world = World(model, SIZES, "spc", kv_eviction=kv_eviction)
    facts = []
    for ids in prompts(random.Random(7)):
        resumed = serve(world, ids)
        facts.append([resumed, *described(world)])
        world.check()
    print(json.dumps({"core": type(world.cache.tree_core).__name__, "facts": facts}))


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
