"""What the nodes that one request matched tell, from the root downwards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from spc_sglang.planning.node import Checkpoint, Node
from spc_sglang.planning.observation import BUCKET_TOKENS


class Admitted(NamedTuple):
    """What one admission told."""

    ghost_depth: int | None
    """Of the evicted checkpoint that would have been resumed from, if any."""
    continues: bool
    """Whether it goes on from the end of an earlier request, kept or not: a conversation."""
    earlier_visits: int
    """Earlier requests whose match went through the deepest matched node, its creator left out."""
    overlaps: tuple[tuple[int, float], ...]
    """(depth, heat) for depths strictly between restore and overlap: past requests, weighted
    with a half-life of 2,000 requests, whose prompt left this one's path there."""


def from_depth(nodes: Sequence[Node], depth: int) -> Sequence[Node]:
    """The nodes at a depth or below it. O(these)."""
    first = len(nodes)
    while first and nodes[first - 1].depth >= depth:
        first -= 1
    return nodes[first:]


def visits(nodes: Sequence[Node]) -> int:
    """Earlier requests that matched to the last node's grid position, the owner left out.

    A few equal tokens beyond a place that is often visited do not make a new place.
    """
    if not nodes:
        return 0
    place = nodes[-1].depth // BUCKET_TOKENS * BUCKET_TOKENS
    return from_depth(nodes, place)[0].passes - 1


def deepest_ghost(nodes: Sequence[Node], restore_depth: int) -> Checkpoint | None:
    """The deepest evicted checkpoint, still watched, below the restore depth."""
    for node in reversed(nodes):
        if node.depth <= restore_depth:
            return None
        if node.checkpoint is not None and not node.is_live:
            return node.checkpoint
    return None


def overlaps_inside(nodes: Sequence[Node], restore_depth: int) -> tuple[tuple[int, float], ...]:
    """Where past requests left this path: the drop of heat from one node to the next."""
    return tuple(
        (upper.depth, upper.heat - lower.heat)
        for upper, lower in pairwise(from_depth(nodes, restore_depth + 1))
        if upper.heat > lower.heat
    )
