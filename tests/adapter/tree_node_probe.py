"""Runs in a process of its own: the attributes of SGLang's nodes, on theirs and on ours.

python -m tests.adapter.tree_node_probe
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.scheduler.world import load_sglang

OWN_VALUE = ("id", "last_access_time", "creation_time", "component_data")
MISSING = "missing"


def main() -> None:
    load_sglang()
    from sglang.srt.mem_cache.unified_cache.components import ComponentData, ComponentType
    from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeNode

    from spc_sglang.adapter.tree_node import NodeData, TreeNode

    present = (ComponentType.FULL, ComponentType.MAMBA)
    theirs, ours = UnifiedTreeNode(present), TreeNode(present)
    assert len(ours.component_data) == len(theirs.component_data)
    pairs = {"node": (theirs, ours), "component": (ComponentData(), NodeData())}
    print(json.dumps({name: side_by_side(*pair) for name, pair in pairs.items()}))


def side_by_side(theirs: object, ours: object) -> dict[str, Any]:
    """Each attribute that theirs has, on both; those left out that differ by nature."""
    names = sorted(set(vars(theirs)) - set(OWN_VALUE))
    return {
        side: {name: repr(getattr(node, name, MISSING)) for name in names}
        for side, node in (("theirs", theirs), ("ours", ours))
    }


if __name__ == "__main__":
    main()
