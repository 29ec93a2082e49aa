"""Our tree core does what SGLang's Python core does, on the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from spc_sglang.adapter.cpu.models import build_model
from tests.probe import facts
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang


def after_each(which: str, *options: str) -> Any:
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    return facts("tests.adapter.tree_core_probe", which, str(model), *options)


def test_a_node_has_what_sglangs_has() -> None:
    """SGLang finds each of its own attributes on our nodes, with its defaults."""
    for found in facts("tests.adapter.tree_node_probe").values():
        assert len(found["theirs"]) >= 7
        assert found["ours"] == found["theirs"]


@pytest.mark.parametrize("options", [("lru",), ("lfu",), ("lru", "--events")], ids=" ".join)
def test_every_request_leaves_the_same_tree(options: tuple[str, ...]) -> None:
    """Nodes, KV indices, states, leaves, free slots, tokens resumed, events, after each of 300."""
    ours, upstream = (after_each(which, *options) for which in ("shorter", "upstream"))
    assert (ours["core"], upstream["core"]) == ("SpcTreeCore", "UnifiedTreeCore")
    assert len(ours["facts"]) == 300
    for number, (own, theirs) in enumerate(zip(ours["facts"], upstream["facts"], strict=True)):
        assert own == theirs, f"request {number}"
    if options[0] == "lru":
        assert ours["kept"] == upstream["kept"] == [640, 576]
    assert ours["leaves_remembered_after_flush"] == 0
    assert ours["shared_entry_written"] is False
    assert sum(resumed > 0 for resumed, *_ in ours["facts"]) > 50
    kinds = {event[0] for _, events, *_ in ours["facts"] for event in events}
    published = {"AllBlocksCleared", "BlockStored", "BlockRemoved"}
    assert kinds == (published if "--events" in options else set())
    assert ours["facts"][-1][-1] > 20  # checkpoints published inside paths
