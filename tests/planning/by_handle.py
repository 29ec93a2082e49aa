"""`Retention` on a tree whose nodes are named by the test that reports them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from spc_sglang.planning.matched_path import Admitted
from spc_sglang.planning.node import Kind, Node
from spc_sglang.planning.retention import Retention

Path = Sequence[tuple[Hashable, int]]
"""Names from the root (left out) downwards, each with its depth in tokens."""


class Named(Node):
    __slots__ = ("name",)

    def __init__(self, name: Hashable, parent: Node) -> None:
        super().__init__()
        self.name = name
        self.parent = parent
        parent.children[name] = self


class ByHandle:
    """One tree and the retention that watches it, with names for nodes in every call."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self.root = Node()
        self.nodes: dict[Hashable, Named] = {}

    def admitted(self, path: Path, restored: Hashable | None) -> Admitted:
        matched = self.nodes[path[-1][0]] if path else None
        return self.retention.admitted(matched, None if restored is None else self.nodes[restored])

    def grown(self, path: Path) -> None:
        """New nodes on a path are leaves."""
        above: Node = self.root
        for name, depth in path:
            if name not in self.nodes:
                self.nodes[name] = Named(name, above)
                self.retention.leaf(self.nodes[name], depth)
            assert self.nodes[name].parent is above, name
            above = self.nodes[name]

    def split(self, name: Hashable, depth: int, child: Hashable) -> None:
        lower = self.nodes[child]
        assert lower.parent is not None
        del lower.parent.children[child]
        self.nodes[name] = upper = Named(name, lower.parent)
        upper.children[child], lower.parent = lower, upper
        self.retention.split(upper, depth, lower)

    def forgotten(self, name: Hashable) -> None:
        leaf = self.nodes.pop(name)
        assert not leaf.children and leaf.parent is not None
        del leaf.parent.children[name]
        self.retention.forgotten(leaf)

    def inserted(self, name: Hashable, kind: Kind) -> None:
        self.retention.inserted(self.nodes[name], kind)

    def evicted(self, name: Hashable, *, watch: bool = True) -> None:
        self.retention.evicted(self.nodes[name], watch=watch)

    def is_live(self, name: Hashable) -> bool:
        return name in self.nodes and self.nodes[name].is_live

    def value(self, name: Hashable) -> float:
        return self.retention.value(self.nodes[name])

    def choose_victim(
        self,
        exclude: Collection[Hashable] = (),
        locked: Callable[[Hashable], bool] | None = None,
        queue_hits: Mapping[Any, float] | None = None,
    ) -> Hashable | None:
        kept = [self.nodes[name] for name in exclude if name in self.nodes]
        victim = self.retention.choose_victim(kept, by_node(locked), self._hits(queue_hits))
        return None if victim is None else name_of(victim)

    def outbids(
        self,
        kind: Kind,
        gap: int,
        locked: Callable[[Hashable], bool] | None = None,
        queue_hits: Mapping[Any, float] | None = None,
    ) -> bool:
        return self.retention.outbids(kind, gap, by_node(locked), self._hits(queue_hits))

    def _hits(self, by_name: Mapping[Any, float] | None) -> dict[Node, float]:
        return {self.nodes[name]: hits for name, hits in (by_name or {}).items()}


def by_node(locked: Callable[[Hashable], bool] | None) -> Callable[[Node], bool] | None:
    return None if locked is None else lambda node: locked(name_of(node))


def name_of(node: Node) -> Hashable:
    assert isinstance(node, Named)
    return node.name
