"""What a checkpoint and a token of KV weigh, for named models or for bytes that a user gives."""

from __future__ import annotations

from dataclasses import dataclass

FP32_BYTES = 4
BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes over all layers on all devices together."""

    name: str
    state_bytes: int
    """One checkpoint: the recurrent states and the convolution windows."""
    kv_token_bytes: int
    """Keys and values of one token."""


@dataclass(frozen=True, slots=True)
class GatedDeltaShape:
    """The sizes of a gated-delta hybrid that its cache depends on."""

    num_linear_layers: int
    num_attention_layers: int
    num_linear_key_heads: int
    num_linear_value_heads: int
    linear_head_dim: int
    num_key_value_heads: int
    head_dim: int
    conv_width: int = 4

    def bytes(self, name: str) -> ModelBytes:
        """With SGLang's default pools: fp32 states, bf16 convolution windows and KV."""
        heads, width = self.num_linear_value_heads, self.linear_head_dim
        channels = (2 * self.num_linear_key_heads + heads) * width
        layer = heads * width * width * FP32_BYTES + channels * (self.conv_width - 1) * BF16_BYTES
        kv_values = 2 * self.num_key_value_heads * self.head_dim * self.num_attention_layers
        return ModelBytes(name, layer * self.num_linear_layers, kv_values * BF16_BYTES)


# 0.8B: the shape of adapter/cpu/models.py; Next: the defaults of transformers' Qwen3NextConfig
SHAPES = {
    "qwen3.5-0.8b": GatedDeltaShape(18, 6, 16, 16, 128, 2, 256),
    "qwen3-next-80b-a3b": GatedDeltaShape(36, 12, 16, 32, 128, 2, 256),
}


def named(name: str) -> ModelBytes:
    """The named model; ValueError that lists the names otherwise."""
    if name not in SHAPES:
        raise ValueError(f"model {name!r}: use one of {', '.join(SHAPES)}, or --model-bytes")
    return SHAPES[name].bytes(name)


def given(text: str) -> ModelBytes:
    """From `STATE,KV`: bytes of one checkpoint, and of the KV of one token."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"model-bytes {text!r}: need STATE,KV, two whole numbers of bytes")
    return ModelBytes(f"{text} bytes", int(parts[0]), int(parts[1]))
