"""Small random hybrid models for tests, the demo and benchmarks: seeded, made on the spot.

    python -m spc_sglang.adapter.cpu.models qwen3_5 MODELDIR

The decay of the linear layers starts slow, so that the recurrent state reaches far back and a
wrong state shows in the answer. Text is tokenized byte by byte, so any text has a known length.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from spc_sglang.adapter.cpu import stubs
from spc_sglang.adapter.cpu.model_families import OTHER_FAMILIES, VOCABULARY, Family

STAMP_NAME = "spc-model.json"
BUILDER_VERSION = 1  # counts changes here that change the models
DTYPES = ("float32", "bfloat16")
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a gated-delta model: three linear layers, then one attention layer, and again."""

    architecture: str  # transformers module: qwen3_5 or qwen3_next
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_linear_key_heads: int
    num_linear_value_heads: int
    linear_head_dim: int
    initializer_range: float
    max_positions: int
    num_experts: int = 0


FAMILIES: dict[str, ModelShape] = {
    # seconds to start, for tests
    "qwen3_5": ModelShape("qwen3_5", 128, 256, 4, 4, 2, 32, 2, 4, 32, 0.15, 16384),
    "qwen3_next": ModelShape("qwen3_next", 128, 256, 4, 4, 2, 32, 2, 4, 32, 0.15, 16384, 4),
    # large enough for the time of a prefill to show on two slow cores
    "qwen3_5_medium": ModelShape("qwen3_5", 512, 1024, 8, 8, 2, 64, 4, 8, 64, 0.06, 32768),
    # the published 0.8B model's shape, with a vocabulary of 512
    "qwen3_5_0p8b": ModelShape("qwen3_5", 1024, 3584, 24, 8, 2, 256, 16, 16, 128, 0.02, 32768),
}


def build_model(family: str, folder: Path, *, dtype: str = "float32", seed: int = 0) -> Path:
    """Write the model and its tokenizer to `folder` unless they are there; returns `folder`.

    ValueError for a family that is not in FAMILIES or OTHER_FAMILIES, or a dtype not in DTYPES.
    """
    known = (*FAMILIES, *OTHER_FAMILIES)
    if family not in known:
        raise ValueError(f"family {family!r} is not one of {', '.join(known)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    sizes = asdict(FAMILIES[family]) if family in FAMILIES else family
    recipe = json.dumps([BUILDER_VERSION, sizes, dtype, seed])
    stamp = {"family": family, "recipe": hashlib.sha256(recipe.encode()).hexdigest()}
    path = folder / STAMP_NAME
    if path.is_file() and json.loads(path.read_text()) == stamp:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    stubs.tolerate_cuda_torchvision()
    made = _gated_delta(FAMILIES[family]) if family in FAMILIES else OTHER_FAMILIES[family]()
    _write_weights(made, folder, dtype, seed, wide=family in OTHER_FAMILIES)
    _write_tokenizer(folder)
    path.write_text(json.dumps(stamp))
    return folder


def _write_weights(made: Family, folder: Path, dtype: str, seed: int, *, wide: bool) -> None:
    """`wide` draws all matrices from a spread of 0.15, whatever the family does itself."""
    import torch

    # the caller's generator is left as it was
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = made.model_class(made.config).to(getattr(torch, dtype)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("A_log"):
                    parameter.uniform_(-3.0, 0.5)
                elif name.endswith("dt_bias"):
                    parameter.uniform_(-2.0, 0.5)
                elif wide and parameter.dim() > 1:
                    parameter.normal_(0.0, 0.5 if "conv" in name else 0.15)
    model.save_pretrained(folder)
    _rename_weights(folder, made.renamed)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(made.fields)
    path.write_text(json.dumps(config, indent=1))


def _rename_weights(folder: Path, renamed: tuple[tuple[str, str], ...]) -> None:
    if not renamed:
        return
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    for old, new in renamed:
        weights = {name.replace(old, new): rows for name, rows in weights.items()}
    save_file(weights, path, metadata={"format": "pt"})


def _gated_delta(shape: ModelShape) -> Family:
    config_class, model_class = _transformers_classes(shape.architecture)
    # fields that SGLang reads and transformers' own config does not have
    fields = {
        "full_attention_interval": 4,
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
    }
    return Family(config_class(**_config(shape)), model_class, fields)


def _transformers_classes(architecture: str) -> tuple[type, type]:
    if architecture == "qwen3_5":
        from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

        return Qwen3_5TextConfig, Qwen3_5ForCausalLM
    from transformers.models.qwen3_next import Qwen3NextConfig, Qwen3NextForCausalLM

    return Qwen3NextConfig, Qwen3NextForCausalLM


def _config(shape: ModelShape) -> dict[str, object]:
    pattern = ["linear_attention"] * 3 + ["full_attention"]
    config: dict[str, object] = {
        **VOCABULARY,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_positions,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": shape.linear_head_dim,
        "linear_value_head_dim": shape.linear_head_dim,
        "linear_num_key_heads": shape.num_linear_key_heads,
        "linear_num_value_heads": shape.num_linear_value_heads,
        "layer_types": pattern * (shape.num_layers // 4),
        "initializer_range": shape.initializer_range,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
    }
    if shape.num_experts:
        config |= {
            "num_experts": shape.num_experts,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": shape.intermediate_size // 4,
            "shared_expert_intermediate_size": shape.intermediate_size // 4,
            "decoder_sparse_step": 1,
        }
    return config


def _write_tokenizer(folder: Path) -> None:
    """One token a byte, after the special tokens 0 to 3: byte tokens are 4 to 259."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def main() -> None:
    """Command line of build_model."""
    parser = argparse.ArgumentParser(description="Make a small random hybrid model.")
    parser.add_argument("family", choices=[*FAMILIES, *OTHER_FAMILIES])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(build_model(options.family, options.folder, dtype=options.dtype, seed=options.seed))


if __name__ == "__main__":
    main()
