"""The plugin is inert without its flag, and refuses clearly what it cannot do."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from spc_sglang.adapter import compatibility, plugin
from tests import probe


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = probe.facts("tests.adapter.sglang_probe")
    return found


def test_without_the_flag_no_hook_is_registered_or_applied(facts: dict[str, Any]) -> None:
    assert not any(facts["inert"].values()), facts["inert"]


def test_without_the_flag_nothing_else_of_ours_is_imported(facts: dict[str, Any]) -> None:
    assert facts["imported"] == ["spc_sglang.adapter.plugin"]


def test_launcher_hooks_only_where_the_command_line_asks(facts: dict[str, Any]) -> None:
    state = facts["after_command_line"]
    applied = {target for target, installed in state.items() if installed}
    assert applied == {
        "registered",
        "sglang.srt.server_args.ServerArgs.add_cli_args",
        "sglang.srt.server_args.ServerArgs.from_cli_args",
    }


def test_all_hooks_of_the_table_can_be_applied(facts: dict[str, Any]) -> None:
    assert all(facts["after_scheduler"].values()), facts["after_scheduler"]


def test_flags_are_validated_and_survive_pickling(facts: dict[str, Any]) -> None:
    lines = facts["command_line"]
    assert lines["good"]["options"]["block_tokens"] == 192
    assert lines["stock"]["options"] is None
    assert "--spc-block-tokens" in lines["bad_value"]["stopped"]
    assert "got 0" in lines["bad_value"]["stopped"]
    assert "needs --radix-cache-backend spc" in lines["without_backend"]["stopped"]
    assert "speculative" in lines["speculative"]["stopped"]


def test_engine_keywords(facts: dict[str, Any]) -> None:
    engine = facts["engine"]
    assert engine["good"]["block_tokens"] == 320
    assert "spc_blocks" in engine["unknown"]
    assert "needs radix_cache_backend='spc'" in engine["without_backend"]
    assert engine["stock"] is None


def test_every_unsupported_flag_is_refused_with_a_remedy(facts: dict[str, Any]) -> None:
    for refusal in facts["rules"]:
        assert "drop --radix-cache-backend spc." in refusal, refusal


def test_layers_that_we_do_not_know_are_refused(facts: dict[str, Any]) -> None:
    """Mamba1 runs in the backend of Mamba2, but asserts that nothing is captured."""
    refused = {kind for kind, said in facts["layers"].items() if said != "accepted"}
    assert refused == {"ShortConvAttnBackend", "Mamba1"}, facts["layers"]
    assert "FalconMambaForCausalLM has recurrent layers other than" in facts["layers"]["Mamba1"]


def test_missing_or_changed_hook_targets_stop_the_start(facts: dict[str, Any]) -> None:
    outcomes = facts["hooks"]
    assert "prepare_for_extend_gone" in outcomes["missing"]
    assert "sglang.srt.gone" in outcomes["missing_module"]
    assert "('self', 'other')" in outcomes["changed"]
    assert all("install sglang==0.5.23" in text for text in outcomes.values())


def test_untested_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.5.24")
    with pytest.raises(compatibility.Unsupported, match=r"sglang 0\.5\.24 .* install sglang==0"):
        compatibility.check_version()


@pytest.mark.parametrize(
    ("argv", "mentions", "selects"),
    [
        (["--model-path", "m"], False, False),
        (["--help"], True, False),
        (["--config", "c.yaml"], True, False),
        (["--radix-cache-backend", "flexkv"], True, False),
        (["--radix-cache-backend", "spc"], True, True),
        (["--radix-cache-backend=spc"], True, True),
        (["--spc-block-tokens=64"], True, True),
    ],
)
def test_command_lines_that_concern_us(argv: list[str], mentions: bool, selects: bool) -> None:
    assert plugin.mentions_backend(argv) is mentions
    assert plugin.selects_backend(argv) is selects
