"""Keeps requests out of one scheduling round without losing their place in the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def withheld(scheduler: Any, held: Sequence[Any]) -> Iterator[None]:
    """Inside, `scheduler.waiting_queue` lacks the requests of `held`; afterwards they are back."""
    queue = scheduler.waiting_queue
    out = set(map(id, held))
    if out:
        scheduler.waiting_queue = [req for req in queue if id(req) not in out]
    try:
        yield
    finally:
        if out:
            scheduler.waiting_queue = _merged(queue, out, scheduler.waiting_queue)


def _merged(queue: Sequence[Any], held: set[int], left: Sequence[Any]) -> list[Any]:
    """What was held and what is left, in the old order, then what came in meanwhile."""
    old = set(map(id, queue))
    keep = set(map(id, left)) | held
    return [req for req in queue if id(req) in keep] + [req for req in left if id(req) not in old]
