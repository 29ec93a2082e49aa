"""The small random models: same seed, same model; one token a byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spc_sglang.adapter.cpu import models
from spc_sglang.adapter.cpu.model_families import OTHER_FAMILIES
from spc_sglang.adapter.cpu.models import build_model


def test_building_is_repeatable_and_happens_once(tmp_path: Path) -> None:
    """Equal arguments give equal weights; a second call writes nothing; a new seed rebuilds."""
    first = build_model("qwen3_5", tmp_path / "a") / "model.safetensors"
    second = build_model("qwen3_5", tmp_path / "b") / "model.safetensors"
    weights, written = first.read_bytes(), first.stat().st_mtime_ns
    assert weights == second.read_bytes()
    build_model("qwen3_5", tmp_path / "a")
    assert first.stat().st_mtime_ns == written
    build_model("qwen3_5", tmp_path / "a", seed=1)
    assert first.read_bytes() != weights


def test_config_has_what_sglang_reads(tmp_path: Path) -> None:
    """Three linear layers to one attention layer, states in fp32 whatever the weights."""
    folder = build_model("qwen3_next", tmp_path, dtype="bfloat16")
    config = json.loads((folder / "config.json").read_text())
    assert config["full_attention_interval"] == 4 and config["mamba_ssm_dtype"] == "float32"
    assert config["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]
    assert config["dtype"] == "bfloat16" and config["num_experts"] == 4


def test_a_byte_is_a_token_and_chats_have_a_template(tmp_path: Path) -> None:
    """Any text comes back from its tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(build_model("qwen3_5", tmp_path))
    text = "Grüße, 世界!\n"
    tokens = tokenizer(text)["input_ids"]
    assert len(tokens) == len(text.encode()) and min(tokens) >= 4
    assert tokenizer.decode(tokens) == text
    chat = [{"role": "user", "content": "hi"}]
    shown = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("family", models.FAMILIES)
def test_shapes_are_consistent(family: str) -> None:
    """Layers come in groups of four, heads divide, conv channels fill torch's vector loops."""
    shape = models.FAMILIES[family]
    assert shape.num_layers % 4 == 0
    assert shape.num_attention_heads % shape.num_key_value_heads == 0
    assert shape.num_linear_value_heads % shape.num_linear_key_heads == 0
    assert shape.linear_head_dim % 32 == 0


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_other_families_have_layers_of_both_kinds(family: str, tmp_path: Path) -> None:
    """Their decay starts slow as well, and every file is there that SGLang loads."""
    from safetensors.torch import load_file

    folder = build_model(family, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    decays = [rows for name, rows in weights.items() if name.endswith("A_log")]
    assert len(decays) == 3 and all(rows.min() > -3.0 and rows.max() < 0.5 for rows in decays)
    assert any("q_proj" in name for name in weights)
    if family == "kimi_linear":
        assert config["linear_attn_config"]["kda_layers"] == [1, 2, 3]
        assert not any("layers.0.block_sparse_moe" in name for name in weights)
    else:
        assert config.get("mamba_chunk_size", config.get("chunk_size")) == 64


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match="'llama' is not one of qwen3_5"):
        build_model("llama", tmp_path)
    with pytest.raises(ValueError, match="'float16' is not one of float32"):
        build_model("qwen3_5", tmp_path, dtype="float16")
