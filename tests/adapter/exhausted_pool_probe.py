"""Runs in a process of its own: a request is prefilled while nobody has a state slot left.

python -m tests.adapter.exhausted_pool_probe stock|spc MODELDIR
"""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path
from typing import Any

import torch

from benchmarks.scheduler.world import Sizes, World, load_sglang

SIZES = Sizes(slots=16, kv_tokens=12_000, context_tokens=4096)


def main() -> None:
    backend, model = sys.argv[1], Path(sys.argv[2])
    load_sglang()
    world = World(model, SIZES, None if backend == "stock" else backend)
    first, second = prompt(seed=1), prompt(seed=2)
    facts: dict[str, Any] = {
        "first": prefill(world, first, captures_too=False),
        "second": prefill(world, second, captures_too=True),
    }
    if backend == "spc":
        from benchmarks.scheduler.worker import serve

        facts["counters"] = world.cache.counters.as_dict()
        facts["stored_later"] = serve(world, second)
        longer = second + prompt(seed=3)
        facts["continued"] = prefill(world, longer, captures_too=True)
        facts["own_state_given_up"] = serve(world, second), serve(world, longer)
    print(json.dumps(facts))


def prefill(world: World, ids: array[int], *, captures_too: bool) -> str:
    """One prompt, stored before its end without a free slot, then with all; "stored" or why not.

    Our captures hold slots in between, which the engine may take.
    """
    req = world.request(ids)
    world.admit(req)
    batch = world.batch(req)
    batch.prepare_for_extend()
    occupied = occupy(world, captures_too=captures_too)
    try:
        world.store(req)
    except AssertionError as error:
        return str(error)
    finally:
        for slot in occupied:
            world.rows.mamba_allocator.free(slot)
    world.finish(req)
    world.check()
    return "stored"


def occupy(world: World, *, captures_too: bool) -> list[torch.Tensor]:
    """Take every slot that is free or evictable; also those of pending captures, if asked."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    cache, allocator = world.cache, world.rows.mamba_allocator
    if captures_too and hasattr(cache, "ledger"):
        for slot in cache.ledger.revoke(len(cache.ledger)):
            allocator.free(slot)
    cache.evict(EvictParams(num_tokens=0, mamba_num=cache.mamba_evictable_size()))
    return [allocator.alloc(1) for _ in range(allocator.available_size())]


def prompt(seed: int) -> array[int]:
    generator = torch.Generator().manual_seed(seed)
    return array("q", torch.randint(8, 10_000, (1500,), generator=generator).tolist())


if __name__ == "__main__":
    main()
