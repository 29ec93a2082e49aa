"""The planner's own view of the prefix tree: who lies below whom, and how often it was passed.

Nodes are opaque handles that a prefix tree hands out (a split keeps the lower node's handle, so
a handle never changes its depth). The owner of the real tree reports paths and splits; nothing
here knows tokens or states.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import exp2

Handle = Hashable
Path = Sequence[tuple[Handle, int]]
"""Nodes from the root (left out) downwards, each with its depth in tokens."""

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
    slot: int
    last_use: int
    booked: int
    of_class: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """One tree node. `passes` counts requests whose prompt went through it, creator included.

    `ended` says that a request ended here once and left its tail; `touched` is the place's last
    use in the LRU pool that the guard follows, 0 for never. `live_below` counts the children that
    are live or have something live below them.
    """

    handle: Handle
    depth: int
    parent: Node | None
    passes: int = 1
    heat: float = 1.0
    heated_at: int = 0
    live_below: int = 0
    ended: bool = False
    touched: int = 0
    checkpoint: Checkpoint | None = None
    children: dict[Handle, Node] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        return self.checkpoint is not None and self.checkpoint.slot >= 0

    @property
    def leads_to_live(self) -> bool:
        """Whether this node or one below it holds a live checkpoint."""
        return self.live_below > 0 or self.is_live

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


def pass_by(nodes: Iterable[Node], now: int) -> None:
    """One more request went through; `heat` counts with a half-life of 2,000 requests."""
    for node in nodes:
        node.passes += 1
        node.heat = node.heat * exp2((node.heated_at - now) / HEAT_HALF_LIFE_REQUESTS) + 1.0
        node.heated_at = now


class Mirror:
    """The nodes by handle."""

    def __init__(self) -> None:
        self.root = Node(handle=None, depth=0, parent=None)
        self._nodes: dict[Handle, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, handle: Handle) -> bool:
        return handle in self._nodes

    def __getitem__(self, handle: Handle) -> Node:
        return self._nodes[handle]

    def follow(self, path: Path, now: int) -> list[Node]:
        """The nodes of a path; new ones are added, as their creator's, and links are mended.

        A new node above a known one is the upper half of a split that nobody reported.
        """
        above, nodes = self.root, []
        for handle, depth in path:
            node = self._nodes.get(handle)
            if node is None:
                assert depth > above.depth, (handle, depth, above.depth)
                node = self._add(handle, depth, above, now)
            elif node.parent is not above:
                self._put_between(above, node)
            nodes.append(node)
            above = node
        return nodes

    def nodes_to(self, handle: Handle) -> list[Node]:
        """The nodes from below the root down to a known one. O(path)."""
        node: Node | None = self._nodes[handle]
        nodes = []
        while node is not None and node is not self.root:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def add_leaf(self, handle: Handle, depth: int, parent: Handle | None, now: int) -> None:
        """A new leaf under a known node, or under the root for None."""
        above = self.root if parent is None else self._nodes[parent]
        assert handle not in self._nodes and depth > above.depth, (handle, depth, above.depth)
        self._add(handle, depth, above, now)

    def split(self, handle: Handle, depth: int, child: Handle) -> None:
        """The tree put a new node above `child`: everything that passed `child` passed it."""
        lower = self._nodes[child]
        assert lower.parent is not None and lower.parent.depth < depth < lower.depth
        self._put_between(self._add(handle, depth, lower.parent, lower.heated_at), lower)

    def remove(self, handle: Handle) -> Node:
        """Forget a leaf without a checkpoint."""
        node = self._nodes.pop(handle)
        assert not node.children and node.checkpoint is None and node.parent is not None
        del node.parent.children[handle]
        return node

    def _add(self, handle: Handle, depth: int, parent: Node, now: int) -> Node:
        node = Node(handle, depth, parent, heated_at=now)
        self._nodes[handle] = parent.children[handle] = node
        return node

    def _put_between(self, upper: Node, lower: Node) -> None:
        """Move `lower`, until now a child of `upper.parent`, below the new node `upper`."""
        assert lower.parent is not None and lower.parent is upper.parent, lower.handle
        del lower.parent.children[lower.handle]
        upper.children[lower.handle] = lower
        lower.parent = upper
        upper.passes, upper.heat, upper.heated_at = lower.passes, lower.heat, lower.heated_at
        upper.live_below = int(lower.leads_to_live)
