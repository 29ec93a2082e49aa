"""The KV side of a replay: a radix tree over trie nodes, with an optional token limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spc_sglang.planning.mirror import Path
from spc_sglang.planning.retention import Retention
from spc_sglang.replay.trace import BLOCK_TOKENS, NodeArray


@dataclass(slots=True)
class _Edge:
    """The blocks of one radix node; its handle is the last of them."""

    blocks: NodeArray
    depth: int
    parent: int
    children: int = 0
    used: int = 0


class RadixTree:
    """Which blocks are resident, and the radix nodes over them; tells `retention` of changes.

    A radix node is named by its deepest trie node. Beyond `kv_blocks` the least recently used
    leaf goes (None: no limit).
    """

    def __init__(self, num_nodes: int, retention: Retention, kv_blocks: int | None) -> None:
        self.retention = retention
        self.kv_blocks = kv_blocks
        self.owner = np.full(num_nodes, -1, dtype=np.int32)
        self.num_resident = 0
        self._edge_of = np.full(num_nodes, -1, dtype=np.int32)
        self._edges: dict[int, _Edge] = {}
        self._clock = 0

    def overlap(self, path: NodeArray) -> int:
        """Leading blocks of the path that are resident."""
        missing = self._edge_of[path] < 0
        return int(missing.argmax()) if missing.any() else len(path)

    def handles(self, path: NodeArray) -> NodeArray:
        """The radix nodes on a resident path."""
        on_path: NodeArray = path[self._edge_of[path] == path]
        return on_path

    def as_path(self, handles: NodeArray) -> Path:
        """Handles with their depths in tokens."""
        edges = self._edges
        return [(h, edges[h].depth * BLOCK_TOKENS) for h in handles.tolist()]

    def split_at(self, path: NodeArray, depth: int) -> int:
        """Make the resident path's node at `depth` blocks a radix node; returns its handle."""
        handle = int(path[depth - 1])
        child = int(self._edge_of[handle])
        if child == handle:
            return handle
        lower = self._edges[child]
        cut = len(lower.blocks) - (lower.depth - depth)
        upper = _Edge(lower.blocks[:cut], depth, lower.parent, 1, lower.used)
        lower.blocks, lower.parent = lower.blocks[cut:], handle
        self._edges[handle] = upper
        self._edge_of[upper.blocks] = handle
        if self.retention.knows(child):
            self.retention.split(handle, depth * BLOCK_TOKENS, child)
        return handle

    def grow(self, path: NodeArray, overlap: int, request: int) -> None:
        """Add the blocks beyond `overlap`, owned by `request`."""
        if overlap == len(path):
            return
        blocks, handle = path[overlap:], int(path[-1])
        parent = int(path[overlap - 1]) if overlap else -1
        self._edges[handle] = _Edge(blocks, len(path), parent)
        if parent >= 0:
            self._edges[parent].children += 1
        self._edge_of[blocks] = handle
        self.owner[blocks] = request
        self.num_resident += len(blocks)

    def touch(self, path: NodeArray) -> None:
        """The path is the most recently used."""
        self._clock += 1
        if self.kv_blocks is not None:
            for handle in self.handles(path).tolist():
                self._edges[handle].used = self._clock

    def shrink(self) -> None:
        """Evict least recently used leaves until the limit holds; never the path just used."""
        if self.kv_blocks is None or self.num_resident <= self.kv_blocks:
            return
        leaves = sorted(
            (edge.used, handle) for handle, edge in self._edges.items() if not edge.children
        )
        for used, leaf in leaves:
            handle = leaf
            while handle >= 0 and self._edges[handle].children == 0 and used < self._clock:
                if self.num_resident <= self.kv_blocks:
                    return
                handle = self._drop(handle, used)

    def _drop(self, handle: int, used: int) -> int:
        """Remove a leaf; returns its parent if that became a leaf used no later, else -1."""
        edge = self._edges.pop(handle)
        self._edge_of[edge.blocks] = -1
        self.num_resident -= len(edge.blocks)
        self.retention.forgotten(handle)
        if edge.parent < 0:
            return -1
        parent = self._edges[edge.parent]
        parent.children -= 1
        return edge.parent if parent.used <= used else -1
