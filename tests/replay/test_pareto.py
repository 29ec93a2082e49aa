"""Fronts on rows made by hand, bytes of the named models, and places on the plots' axes."""

from __future__ import annotations

import pytest

from spc_sglang.adapter.cpu.models import FAMILIES
from spc_sglang.replay import plot
from spc_sglang.replay.metrics import Row, row
from spc_sglang.replay.model_bytes import SHAPES, GatedDeltaShape, ModelBytes, named
from spc_sglang.replay.pareto import as_json, front
from spc_sglang.replay.simulator import Outcome

KIB, MIB = 1024, 1024 * 1024


def made(policy: str, share: float, peak: int, model: ModelBytes | None = None) -> Row:
    """A replay of one request of 1,000 tokens, all matched, the share of them resumed."""
    outcome = Outcome([2000], [1000], [int(1000 * share)], 1, 0, peak)
    return row(policy, peak, outcome, 0.0, kv_tokens=100, model=model)


def test_front_drops_what_is_equalled_for_less() -> None:
    rows = [
        made("dear", 0.9, 40),
        made("cheap", 0.2, 4),
        made("beaten", 0.5, 30),
        made("good", 0.6, 20),
        made("equal", 0.6, 25),
        made("clairvoyant", 1.0, 1),
    ]
    assert [r.policy for r in front(rows, "checkpoints")] == ["cheap", "good", "dear"]
    assert front(rows, "bytes") == []


def test_bytes_count_states_and_kv() -> None:
    model = ModelBytes("m", 7, 3)
    rows = [made("few", 0.5, 2, model), made("many", 0.9, 5, model)]
    assert [r["held"] for r in as_json(rows)["bytes"]] == [2 * 7 + 300, 5 * 7 + 300]


def test_named_models() -> None:
    """Qwen3-Next: 36 layers of 2 MiB state and 48 KiB window, 12 of 2 x 2 x 256 bf16 KV."""
    found = named("qwen3-next-80b-a3b")
    assert found.state_bytes == 36 * (2 * MIB + 48 * KIB) == 77_266_944
    assert found.kv_token_bytes == 12 * 2 * KIB
    family = FAMILIES["qwen3_5_0p8b"]
    attention = family.num_layers // 4
    assert SHAPES["qwen3.5-0.8b"] == GatedDeltaShape(
        family.num_layers - attention,
        attention,
        family.num_linear_key_heads,
        family.num_linear_value_heads,
        family.linear_head_dim,
        family.num_key_value_heads,
        family.head_dim,
    )
    assert named("qwen3.5-0.8b").state_bytes == 18 * (MIB + 36 * KIB) == 19_537_920
    with pytest.raises(ValueError, match="qwen3-next-80b-a3b"):
        named("other")


def test_axes_place_their_ends_and_ticks() -> None:
    shares, counts = plot.percent(), plot.logarithmic("n", [1, 1000])
    assert (shares.place(0.0), shares.place(0.25), shares.place(1.0)) == (0.0, 0.25, 1.0)
    assert [text for _, text in counts.ticks] == ["1", "10", "100", "1k"]
    few = plot.logarithmic("n", [1, 30])
    assert [text for _, text in few.ticks] == ["1", "2", "5", "10", "20"]
    assert counts.place(100) - counts.place(10) == pytest.approx(
        counts.place(1000) - counts.place(100)
    )
    assert [text for _, text in plot.linear("t", [470.0]).ticks] == [
        "0",
        "100",
        "200",
        "300",
        "400",
    ]
    assert plot.categories("slots", [16]).place(0.0) == 0.0


def test_names_are_escaped() -> None:
    drawn = plot.draw([plot.Curve("<b>", [(0.0, 0.5)])], plot.linear("x", [1]), plot.percent())
    assert "&lt;b&gt;" in drawn and "<b>" not in drawn
