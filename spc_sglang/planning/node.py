"""A node of a prefix tree as its policy sees it: what lies below it, and how often it was passed.

Whoever keeps the tree makes its nodes of a subclass, links them, and reports leaves and splits to
`Retention`; nothing here knows tokens or states. A node never changes its depth: a split puts a
new node above the one that was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import exp2
from typing import Any

HEAT_HALF_LIFE_REQUESTS = 2000.0


class Kind(Enum):
    """Why a checkpoint was captured.

    TURN is the tail of a request that itself went on from a tail: a conversation, which is more
    likely to go on than a prompt seen for the first time.
    """

    TAIL = "tail"
    TURN = "turn"
    BRANCH = "branch"
    GUESS = "guess"
    SLACK = "slack"

    @property
    def is_guess(self) -> bool:
        return self in (Kind.GUESS, Kind.SLACK)

    @property
    def is_tail(self) -> bool:
        return self in (Kind.TAIL, Kind.TURN)


@dataclass(slots=True, eq=False)
class Checkpoint:
    """A live state (`slot` >= 0) or a ghost (-1): an evicted one that is still watched.

    `last_use` and `booked` are request counts: of the insert or last resume, and up to which
    its exposure is booked.
    """

    node: Node
    kind: Kind
    last_use: int
    booked: int
    slot: int = -1
    of_class: int = 0


class Node:
    """One tree node, `depth` tokens below the root, which has depth 0 and no parent.

    `passes` counts requests whose prompt went through it, creator included; `heat` counts them
    with a half-life of 2,000 requests, as of request `heated_at`. `ended` says that a request
    ended here once and left its tail; `touched` is the place's last use in the LRU pool that the
    guard follows, 0 for never. `live_below` counts the children that are live or have something
    live below them.
    """

    __slots__ = (
        "checkpoint",
        "children",
        "depth",
        "ended",
        "heat",
        "heated_at",
        "live_below",
        "parent",
        "passes",
        "touched",
    )

    def __init__(self) -> None:
        self.depth = 0
        self.parent: Node | None = None
        self.children: dict[Any, Node] = {}
        self.passes = 1
        self.heat = 1.0
        self.heated_at = 0
        self.live_below = 0
        self.ended = False
        self.touched = 0
        self.checkpoint: Checkpoint | None = None

    @property
    def is_live(self) -> bool:
        return self.checkpoint is not None and self.checkpoint.slot >= 0

    @property
    def leads_to_live(self) -> bool:
        """Whether this node or one below it holds a live checkpoint."""
        return self.live_below > 0 or self.is_live

    def path(self) -> list[Node]:
        """The nodes from below the root down to this one. O(path)."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def live_ancestor(self) -> Node | None:
        """The nearest node above that holds a live checkpoint. O(path)."""
        node = self.parent
        while node is not None and not node.is_live:
            node = node.parent
        return node

    def live_fringe(self) -> Iterator[Node]:
        """Live nodes below with no live one in between; visits only nodes that lead there."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            if node.is_live:
                yield node
            elif node.live_below:
                stack.extend(node.children.values())


def pass_by(nodes: Iterable[Node], now: int) -> list[Node]:
    """One more request went through; returns the nodes that now have seen 2^k + 1 of them."""
    past_power, heated_at, decay = [], now, 1.0
    for node in nodes:
        passes = node.passes
        node.passes = passes + 1
        if passes & (passes - 1) == 0:
            past_power.append(node)
        if node.heated_at != heated_at:  # often the same request went through several
            heated_at = node.heated_at
            decay = exp2((heated_at - now) / HEAT_HALF_LIFE_REQUESTS)
        node.heat = node.heat * decay + 1.0
        node.heated_at = now
    return past_power
