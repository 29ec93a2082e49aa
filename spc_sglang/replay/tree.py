"""The KV side of a replay: a radix tree over trie nodes, with an optional token limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spc_sglang.planning.node import Node
from spc_sglang.planning.retention import Retention
from spc_sglang.replay.trace import BLOCK_TOKENS, NodeArray


class RadixNode(Node):
    """The blocks of one radix node; its handle is the last of them."""

    __slots__ = ("blocks", "handle", "used")

    def __init__(self, blocks: NodeArray, parent: Node) -> None:
        super().__init__()
        self.blocks = blocks
        self.handle = int(blocks[-1])
        self.used = 0
        self.parent = parent
        parent.children[self.handle] = self


class RadixTree:
    """Which blocks are resident, and the radix nodes over them; tells `retention` of changes.

    Beyond `kv_blocks` the least recently used leaf goes (None: no limit).
    """

    def __init__(self, num_nodes: int, retention: Retention, kv_blocks: int | None) -> None:
        self.retention = retention
        self.kv_blocks = kv_blocks
        self.owner = np.full(num_nodes, -1, dtype=np.int32)
        self.num_resident = 0
        self.root = Node()
        self._node_of = np.full(num_nodes, -1, dtype=np.int32)
        self._nodes: dict[int, RadixNode] = {}
        self._clock = 0

    def overlap(self, path: NodeArray) -> int:
        """Leading blocks of the path that are resident."""
        missing = self._node_of[path] < 0
        return int(missing.argmax()) if missing.any() else len(path)

    def on_path(self, path: NodeArray) -> Iterator[RadixNode]:
        """The radix nodes that end on a resident path."""
        for handle in path[self._node_of[path] == path].tolist():
            yield self._nodes[handle]

    def split_at(self, path: NodeArray, depth: int) -> RadixNode:
        """Make the resident path's node at `depth` blocks a radix node."""
        handle = int(path[depth - 1])
        lower = self._nodes[int(self._node_of[handle])]
        if lower.handle == handle:
            return lower
        assert lower.parent is not None
        cut = len(lower.blocks) - (lower.depth // BLOCK_TOKENS - depth)
        del lower.parent.children[lower.handle]
        upper = RadixNode(lower.blocks[:cut], lower.parent)
        upper.used = lower.used
        upper.children[lower.handle] = lower
        lower.blocks, lower.parent = lower.blocks[cut:], upper
        self._nodes[handle] = upper
        self._node_of[upper.blocks] = handle
        self.retention.split(upper, depth * BLOCK_TOKENS, lower)
        return upper

    def grow(self, path: NodeArray, overlap: int, request: int) -> None:
        """Add the blocks beyond `overlap`, owned by `request`."""
        if overlap == len(path):
            return
        blocks = path[overlap:]
        parent = self._nodes[int(path[overlap - 1])] if overlap else self.root
        leaf = RadixNode(blocks, parent)
        self._nodes[leaf.handle] = leaf
        self._node_of[blocks] = leaf.handle
        self.owner[blocks] = request
        self.num_resident += len(blocks)
        self.retention.leaf(leaf, len(path) * BLOCK_TOKENS)

    def touch(self, path: NodeArray) -> None:
        """The path is the most recently used."""
        self._clock += 1
        if self.kv_blocks is not None:
            for node in self.on_path(path):
                node.used = self._clock

    def shrink(self) -> None:
        """Evict least recently used leaves until the limit holds; never the path just used."""
        if self.kv_blocks is None or self.num_resident <= self.kv_blocks:
            return
        leaves = sorted(
            (node.used, node.handle) for node in self._nodes.values() if not node.children
        )
        for used, handle in leaves:
            leaf: Node = self._nodes[handle]
            while isinstance(leaf, RadixNode) and not leaf.children and used < self._clock:
                if self.num_resident <= self.kv_blocks:
                    return
                leaf = self._drop(leaf, used)

    def _drop(self, leaf: RadixNode, used: int) -> Node:
        """Remove a leaf; returns its parent if that was used no later, else the root."""
        del self._nodes[leaf.handle]
        self._node_of[leaf.blocks] = -1
        self.num_resident -= len(leaf.blocks)
        self.retention.forgotten(leaf)
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.handle]
        return parent if isinstance(parent, RadixNode) and parent.used <= used else self.root
