"""The tree's nodes: SGLang's attributes and the policy's on one compact object.

A match, an admission and an insert read a few attributes of every node on a path. In SGLang
0.5.23 a node is some 30 objects all over the memory, two of them for each component that the tree
does not even have, and fetching them costs more than what is done with them. Here what is read
is a slot, what no hybrid model sets is a default of the class, and the components that the tree
does not have share one entry that nobody writes to.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.unified_cache.components import (
    _NUM_COMPONENT_TYPES,
    ComponentType,
    get_and_increase_time_counter,
)
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeNode

from spc_sglang.planning.node import Node


class NodeData:
    """SGLang's `ComponentData`, without a dictionary of its own."""

    __slots__ = (
        "_metadata",
        "host_lock_ref",
        "host_value",
        "lock_ref",
        "session_ids",
        "session_ref",
        "value",
    )

    def __init__(self) -> None:
        self.value = self.host_value = self.session_ids = None
        self._metadata: dict[str, Any] | None = None
        self.lock_ref = self.host_lock_ref = self.session_ref = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """Made when first asked for: only a host tier and sliding windows use it."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata


_ABSENT = NodeData()


class TreeNode(Node, UnifiedTreeNode):
    """`UnifiedTreeNode`, which is also the policy's `Node`.

    `token_ids` are those of the key. `used_at` is the last use of the node's KV that is not noted
    at a node below it. `owner_prompt` counts the prompt tokens of the request that brought the
    text, None where that is not known.
    """

    __slots__ = (
        "component_data",
        "component_types",
        "creation_time",
        "id",
        "key",
        "last_access_time",
        "lru_next",
        "lru_prev",
        "owner_prompt",
        "token_ids",
        "used_at",
    )
    # defaults: a node has its own only if SGLang sets one
    hash_value = None
    event_hash_value = None
    hit_count = 0
    _tlru_cached_prefix_len = 0
    _tlru_history_len = 0
    external_cache_stored = False
    priority = 0
    write_through_pending_id = None
    load_back_pending_id = None
    rotation_base = None

    def __init__(self, components: tuple[ComponentType, ...], priority: int = 0) -> None:
        Node.__init__(self)
        self.key: Any = None
        self.token_ids: Any = None
        self.component_types = components
        self.component_data: list[Any] = [_ABSENT] * _NUM_COMPONENT_TYPES
        for component in components:
            self.component_data[component] = NodeData()
        self.last_access_time = get_and_increase_time_counter()
        self.creation_time = get_and_increase_time_counter()
        self.used_at = 0.0
        self.lru_prev: list[Any] = [None] * (2 * _NUM_COMPONENT_TYPES)
        self.lru_next: list[Any] = [None] * (2 * _NUM_COMPONENT_TYPES)
        self.owner_prompt: int | None = None
        self.id = UnifiedTreeNode.counter
        UnifiedTreeNode.counter += 1
        if priority:
            self.priority = priority
