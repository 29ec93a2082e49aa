"""Our tree core does what SGLang's Python core does, on the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from spc_sglang.adapter.cpu.models import build_model
from tests.probe import facts
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang


def after_each(which: str, kv_eviction: str) -> Any:
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    return facts("tests.adapter.tree_core_probe", which, str(model), kv_eviction)


@pytest.mark.parametrize("kv_eviction", ["lru", "lfu"])
def test_every_request_leaves_the_same_tree(kv_eviction: str) -> None:
    """Nodes, KV indices, states, leaves, free slots and tokens resumed, after each of 300."""
    ours, upstream = (after_each(which, kv_eviction) for which in ("shorter", "upstream"))
    assert (ours["core"], upstream["core"]) == ("SpcTreeCore", "UnifiedTreeCore")
    assert len(ours["facts"]) == 300
    for number, (own, theirs) in enumerate(zip(ours["facts"], upstream["facts"], strict=True)):
        assert own == theirs, f"request {number}"
    if kv_eviction == "lru":
        assert ours["kept"] == upstream["kept"] == [640, 576]
    assert ours["leaves_remembered_after_flush"] == 0
    assert sum(resumed > 0 for resumed, *_ in ours["facts"]) > 50
    assert ours["facts"][-1][-1] > 20  # checkpoints published inside paths
