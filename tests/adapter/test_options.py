"""Flags, keywords and environment give the same validated options."""

from __future__ import annotations

import argparse
import pickle
from types import SimpleNamespace

import pytest

from spc_sglang.adapter import options
from spc_sglang.adapter.options import SpcOptions
from spc_sglang.planning.presets import PRESETS as POLICIES


def parse(*argv: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return options.given_flags(parser.parse_args(argv))


def test_defaults_without_any_source() -> None:
    assert options.from_texts(parse(), {}) == SpcOptions()


def test_flag_wins_over_environment_and_environment_over_default() -> None:
    environment = {"SPC_SGLANG_BLOCK_TOKENS": "256", "SPC_SGLANG_PLACEMENT": "block"}
    chosen = options.from_texts(parse("--spc-block-tokens", "128"), environment)
    assert chosen == SpcOptions(placement="block", block_tokens=128)


def test_engine_keywords_go_through_the_same_checks() -> None:
    chosen = options.from_keywords({"block_tokens": 64, "placement": "block"}, {})
    assert chosen == SpcOptions(block_tokens=64, placement="block")
    with pytest.raises(ValueError, match=r"--spc-block-tokens.*0"):
        options.from_keywords({"block_tokens": 0}, {})
    with pytest.raises(ValueError, match="spc_blok"):
        options.from_keywords({"blok": 1}, {})


@pytest.mark.parametrize(
    ("texts", "environment", "message"),
    [
        ({"block_tokens": "0"}, {}, "--spc-block-tokens: .*in 1.*, got 0"),
        ({"block_tokens": "many"}, {}, "--spc-block-tokens: must be an integer, got 'many'"),
        ({"placement": "dp2"}, {}, "--spc-placement: must be one of .* got 'dp2'"),
        ({"gamma": "1.5"}, {}, "--spc-gamma: must lie in (0, 1], got 1.5".replace("(", r"\(")),
        ({"checkpoints": "65"}, {}, "--spc-checkpoints: .*in 1..64, got 65"),
        ({"block_tokens": "128"}, {}, "block_tokens has no effect with placement learned"),
        ({"gamma": "0.9", "placement": "block"}, {}, "gamma has no effect with placement block"),
        ({}, {"SPC_SGLANG_PLACMENT": "none"}, "SPC_SGLANG_PLACMENT is not an option"),
        ({"preset": "paper", "eviction": "value"}, {}, "preset paper fixes eviction to lru"),
        ({}, {"SPC_SGLANG_BLOCK_TOKENS": "-1"}, "SPC_SGLANG_BLOCK_TOKENS: .*got -1"),
    ],
)
def test_bad_values_name_their_source(
    texts: dict[str, str], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        options.from_texts(texts, environment)


def test_the_server_runs_the_policies_of_the_replay() -> None:
    """One home for what "spc" and "paper" mean."""
    assert SpcOptions().policy() == POLICIES["spc"]
    assert options.from_texts({"preset": "paper"}, {}).policy() == POLICIES["paper"]


def test_presets() -> None:
    paper = options.from_texts({"preset": "paper"}, {})
    assert (paper.placement, paper.eviction, paper.checkpoints) == ("dp", "lru", 4)
    assert options.from_texts({}, {}).captures
    assert not options.from_texts({"preset": "stock"}, {}).captures


def test_every_option_is_documented_in_help() -> None:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    for option in options.OPTIONS:
        assert option.flag in text and option.environment in text


def test_options_survive_the_way_to_a_scheduler_process() -> None:
    record = SimpleNamespace()
    options.attach(record, SpcOptions(block_tokens=192))
    assert options.attached(pickle.loads(pickle.dumps(record))) == SpcOptions(block_tokens=192)


def test_options_without_attachment_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPC_SGLANG_CHECKPOINTS", "3")
    assert options.attached(SimpleNamespace()) == SpcOptions(checkpoints=3)
