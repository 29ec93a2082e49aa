"""Small hybrids whose recurrent layers are not gated delta: Mamba2 and Kimi Delta Attention.

Each function returns transformers' configuration and class of one family, the fields of config.json
that SGLang reads and transformers does not write, and the weights that SGLang calls otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MAMBA_CHUNK_TOKENS = 64  # published models have 256; then a test would need long prompts
VOCABULARY: dict[str, Any] = {
    "vocab_size": 512,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
"""What the byte tokenizer asks of every model's configuration."""
_SHARED: dict[str, Any] = {
    **VOCABULARY,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "max_position_embeddings": 16384,
}


@dataclass(frozen=True)
class Family:
    """How to make one model: `fields` go to config.json, `renamed` are prefixes of weights."""

    config: Any
    model_class: type
    fields: dict[str, Any] = field(default_factory=dict)
    renamed: tuple[tuple[str, str], ...] = ()


def falcon_h1() -> Family:
    """Mamba2 and attention side by side in each of three layers."""
    from transformers import FalconH1Config, FalconH1ForCausalLM

    config = FalconH1Config(
        **_SHARED,
        intermediate_size=256,
        num_hidden_layers=3,
        num_key_value_heads=2,
        head_dim=32,
        mamba_d_ssm=128,
        mamba_n_heads=4,
        mamba_d_head=32,
        mamba_n_groups=2,
        mamba_d_state=16,
        mamba_chunk_size=MAMBA_CHUNK_TOKENS,
        mamba_rms_norm=True,
        mamba_norm_before_gate=False,
    )
    return Family(config, FalconH1ForCausalLM)


def granite_hybrid() -> Family:
    """Three Mamba2 layers, then attention; experts."""
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    config = GraniteMoeHybridConfig(
        **_SHARED,
        intermediate_size=128,
        num_hidden_layers=4,
        num_key_value_heads=2,
        layer_types=["mamba", "mamba", "mamba", "attention"],
        mamba_n_heads=8,
        mamba_d_head=32,
        mamba_expand=2,
        mamba_n_groups=1,
        mamba_d_state=16,
        mamba_chunk_size=MAMBA_CHUNK_TOKENS,
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=128,
        position_embedding_type="nope",
        attention_multiplier=32**-0.5,
    )
    return Family(config, GraniteMoeHybridForCausalLM)


def nemotron_h() -> Family:
    """Mamba2, attention and feed-forward layers one after the other, as in a pattern M-M*M-."""
    from transformers import NemotronHConfig, NemotronHForCausalLM

    layers = ["mamba", "mlp", "mamba", "attention", "mamba", "mlp"]
    config = NemotronHConfig(
        **_SHARED,
        layers_block_type=layers,
        intermediate_size=256,
        num_key_value_heads=2,
        head_dim=32,
        mamba_num_heads=8,
        mamba_head_dim=16,
        n_groups=2,
        ssm_state_size=16,
        conv_kernel=4,
        chunk_size=MAMBA_CHUNK_TOKENS,
    )
    # SGLang knows the layers by their older names
    return Family(config, NemotronHForCausalLM, {"layers_block_type": layers, "mamba_n_groups": 2})


def kimi_linear() -> Family:
    """Three KDA layers, then latent attention; experts behind the first layer."""
    from transformers import KimiLinearConfig, KimiLinearForCausalLM

    config = KimiLinearConfig(
        **_SHARED,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_key_value_heads=4,
        kv_lora_rank=64,
        qk_rope_head_dim=16,
        qk_nope_head_dim=32,
        v_head_dim=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        n_shared_experts=1,
        routed_scaling_factor=1.0,  # SGLang's own CPU experts ignore any other
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        linear_head_dim=32,
        linear_num_heads=4,
    )
    fields = {
        "linear_attn_config": {
            "kda_layers": [1, 2, 3],
            "full_attn_layers": [4],
            "head_dim": 32,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
        "num_experts": 4,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "moe_renormalize": True,
        "num_expert_group": 1,
        "first_k_dense_replace": 1,
        "mla_use_nope": True,
        "moe_router_activation_func": "sigmoid",
        "rope_scaling": None,
        "rope_theta": 10000.0,
    }
    renamed = (("layers.0.block_sparse_moe", "layers.0.mlp"),)
    return Family(config, KimiLinearForCausalLM, fields, renamed)


OTHER_FAMILIES: dict[str, Callable[[], Family]] = {
    "falcon_h1": falcon_h1,
    "granite_hybrid": granite_hybrid,
    "nemotron_h": nemotron_h,
    "kimi_linear": kimi_linear,
}
