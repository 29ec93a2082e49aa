"""Learnt statistics survive a restart; damaged files are refused and change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.node import Kind
from spc_sglang.planning.observation import Admission
from spc_sglang.planning.presets import PRESETS, Policy, PolicyOptions, build
from spc_sglang.planning.saved_state import load, save
from tests.planning.by_handle import ByHandle


def taught() -> Policy:
    policy = build(PRESETS["spc"], slots=4)
    for _ in range(20):
        policy.retention.admitted(None, None)
        policy.observations.add(Admission(8000, 3000, 0, owner_prompt=4000))
    tree = ByHandle(policy.retention)
    tree.grown([("a", 640)])
    tree.inserted("a", Kind.GUESS)
    tree.admitted([("a", 640)], "a")
    return policy


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    before, after = taught(), build(PRESETS["spc"], slots=9)
    save(tmp_path / "s.json", before)
    load(tmp_path / "s.json", after)
    assert after.retention.rates.rates.tolist() == before.retention.rates.rates.tolist()
    assert after.observations.overlap_rate == before.observations.overlap_rate
    extend = Extend(prefix=0, end=9001, prompt=9001, grid=64)
    assert after.captures.plan(extend) == before.captures.plan(extend)
    assert len(after.retention) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["s.json"]


def damaged(text: str, how: str) -> str:
    if how == "cut":
        return text[: len(text) // 2]
    state = json.loads(text)
    if how == "version":
        state["version"] = 99
    elif how == "foreign":
        state = [1, 2]
    elif how == "hits":
        state["hits"][3] = -1.0
    else:
        del state["observations"]["absolute"]
    return json.dumps(state)


@pytest.mark.parametrize("how", ["cut", "version", "foreign", "hits", "missing"])
def test_damaged_files_are_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "s.json"
    save(path, taught())
    path.write_text(damaged(path.read_text(), how))
    policy = build(PRESETS["spc"], slots=4)
    with pytest.raises(ValueError, match=r"s\.json"):
        load(path, policy)
    assert sum(policy.retention.rates.hits) == 0.0
    assert policy.observations.overlap_rate == 0.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"placement": "best"}, "'best'"),
        ({"eviction": "fifo"}, "'fifo'"),
        ({"checkpoints": 0}, "got 0"),
        ({"gamma": 0.0}, "gamma"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"price_tokens": -1.0}, "price_tokens"),
    ],
)
def test_options_name_what_is_wrong(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PolicyOptions(**options)  # type: ignore[arg-type]
