"""One layer group of a hybrid model, three gated-delta layers and one of attention, with our twins.

Random weights at the published 0.8B shape, fp32, one sequence. The decay starts slow, so that a
state reaches far back and a wrong one shows in the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from spc_sglang.kernels.causal_conv1d import naive as causal_conv1d
from spc_sglang.kernels.extend_attention import naive as extend_attention
from spc_sglang.kernels.gated_delta import naive as gated_delta
from spc_sglang.kernels.gated_norm import naive as gated_norm

CHUNK_TOKENS = gated_delta.CHUNK_TOKENS
EPS = 1e-6


@dataclass(frozen=True)
class GroupShape:
    """Sizes of one group; the defaults are those of Qwen3.5-0.8B."""

    hidden_size: int = 1024
    intermediate_size: int = 3584
    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 256
    num_linear_heads: int = 16
    linear_head_dim: int = 128
    conv_width: int = 4
    num_linear_layers: int = 3
    rope_theta: float = 10_000.0
    rotary_share: float = 0.25

    @property
    def key_size(self) -> int:
        """Key channels of a gated-delta layer, as many as its value channels."""
        return self.num_linear_heads * self.linear_head_dim


class Checkpoint(NamedTuple):
    """What the recurrent layers of a group hold at one depth, stacked over layers, fp32."""

    states: Tensor  # [layers, HV, V, K]
    windows: Tensor  # [layers, D, W - 1]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self)


class Prefilled(NamedTuple):
    """The last layer's output, KV of all tokens so far, checkpoints by depth."""

    output: Tensor  # [T, hidden]
    kv: tuple[Tensor, Tensor]  # [L, HK, D] twice
    checkpoints: dict[int, Checkpoint]


class LayerGroup:
    """Weights of one group, made from a seed on the given device."""

    def __init__(self, shape: GroupShape, device: torch.device, seed: int = 0) -> None:
        self.shape, self.device = shape, device
        generator = torch.Generator().manual_seed(seed)

        def weight(*size: int) -> Tensor:
            return (torch.randn(*size, generator=generator) * size[-1] ** -0.5).to(device)

        def uniform(low: float, high: float) -> Tensor:
            drawn = torch.rand(shape.num_linear_heads, generator=generator)
            return (low + (high - low) * drawn).to(device)

        hidden, inner = shape.hidden_size, shape.intermediate_size
        width, heads = shape.key_size, shape.num_linear_heads
        self.linear = [
            {
                "qkvz": weight(4 * width, hidden),
                "ba": weight(2 * heads, hidden),
                "conv": weight(3 * width, shape.conv_width),
                "a_log": uniform(-3.0, 0.5),
                "dt_bias": uniform(-2.0, 0.5),
                "norm": torch.ones(shape.linear_head_dim, device=device),
                "out": weight(hidden, width),
            }
            for _ in range(shape.num_linear_layers)
        ]
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.attention = {
            "query_gate": weight(2 * queries, hidden),
            "key": weight(keys, hidden),
            "value": weight(keys, hidden),
            "norm": torch.zeros(shape.head_dim, device=device),
            "out": weight(hidden, queries),
        }
        self.mlp = [
            (weight(2 * inner, hidden), weight(hidden, inner))
            for _ in range(shape.num_linear_layers + 1)
        ]

    def prefill(
        self,
        hidden: Tensor,
        kv: tuple[Tensor, Tensor] | None = None,
        start: Checkpoint | None = None,
        capture: tuple[int, ...] = (),
    ) -> Prefilled:
        """Tokens `hidden` [T, hidden] after what `kv` and `start` hold; both None at the root.

        `capture` are depths from the sequence's first token, on the grid of 64 and within the new
        tokens. Arguments are left as they were.
        """
        depth = 0 if kv is None else kv[0].shape[0]
        captured: list[list[tuple[Tensor, Tensor]]] = [[] for _ in capture]
        # the twins make their buffers on the default device
        with self.device, torch.inference_mode():
            for index, weights in enumerate(self.linear):
                first = None if start is None else (start.states[index], start.windows[index])
                mixed, held = self._delta(weights, hidden, first, [d - depth for d in capture])
                hidden = self._feed(hidden + mixed, index)
                for kept, pair in zip(captured, held, strict=True):
                    kept.append(pair)
            mixed, kv = self._attend(hidden, kv)
            hidden = self._feed(hidden + mixed, -1)
            checkpoints = {
                at: Checkpoint(*(torch.stack(part) for part in zip(*kept, strict=True)))
                for at, kept in zip(capture, captured, strict=True)
            }
        return Prefilled(hidden, kv, checkpoints)

    def _delta(
        self,
        weights: dict[str, Tensor],
        hidden: Tensor,
        start: tuple[Tensor, Tensor] | None,
        offsets: list[int],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """One gated-delta layer, and its state and window at each offset of the new tokens."""
        shape, rows = self.shape, gated_norm.rms_norm(hidden, EPS)
        heads, dim, size = shape.num_linear_heads, shape.linear_head_dim, shape.key_size
        qkv, gate, beta, step = gated_norm.split_qkvzba(
            linear(rows, weights["qkvz"]), linear(rows, weights["ba"]), size, size, heads
        )
        state, window = (None, None) if start is None else start
        mixed, _ = causal_conv1d.prefill(qkv, weights["conv"], None, window, activate=True)
        query, key, value = (part.view(-1, heads, dim) for part in mixed.split(size, dim=-1))
        query, key = gated_delta.prepare_query_key(query, key, heads, normalize=True)
        decay, beta = gated_norm.delta_gates(weights["a_log"], step, beta, weights["dt_bias"])
        if state is None:
            state = torch.zeros(heads, dim, dim)
        result = gated_delta.chunked(query, key, value, decay, beta, state)
        normed = gated_norm.rms_norm_gated(result.output, weights["norm"], gate, EPS)
        held = [
            (result.chunk_states[at // CHUNK_TOKENS], self._window(qkv, window, at))
            for at in offsets
        ]
        return linear(normed.reshape(len(hidden), size), weights["out"]), held

    def _window(self, qkv: Tensor, window: Tensor | None, at: int) -> Tensor:
        """The last inputs of the convolution before row `at`, [D, W - 1]."""
        width = self.shape.conv_width - 1
        if window is None:
            window = qkv.new_zeros(qkv.shape[1], width)
        return torch.cat([window.t(), qkv[:at]])[-width:].t()

    def _attend(
        self, hidden: Tensor, kv: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        shape, weights = self.shape, self.attention
        rows = gated_norm.rms_norm(hidden, EPS)
        depth = 0 if kv is None else kv[0].shape[0]
        query, gate = gated_norm.split_query_gate(
            linear(rows, weights["query_gate"]), shape.num_heads, shape.head_dim
        )
        key = linear(rows, weights["key"])
        query, key = (
            gated_norm.gemma_rms_norm(x, weights["norm"], EPS, shape.head_dim) for x in (query, key)
        )
        query = self._rotate(query.view(len(hidden), -1, shape.head_dim), depth)
        key = self._rotate(key.view(len(hidden), -1, shape.head_dim), depth)
        value = linear(rows, weights["value"]).view(len(hidden), -1, shape.head_dim)
        if kv is not None:
            key, value = torch.cat([kv[0], key]), torch.cat([kv[1], value])
        output = extend_attention.extend(query, key, value).reshape(len(hidden), -1)
        output = gated_norm.sigmoid_multiply_(output, gate)
        return linear(output, weights["out"]), (key, value)

    def _rotate(self, heads: Tensor, depth: int) -> Tensor:
        """Rotary positions from `depth` on, on the first share of each head."""
        size = int(self.shape.head_dim * self.shape.rotary_share)
        frequencies = self.shape.rope_theta ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(depth, depth + len(heads))[:, None] * frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second, rest = heads.split([size // 2, size // 2, heads.shape[-1] - size], dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)

    def _feed(self, hidden: Tensor, index: int) -> Tensor:
        """The MLP of a layer, with its residual."""
        gate_up, down = self.mlp[index]
        gate, up = linear(gated_norm.rms_norm(hidden, EPS), gate_up).chunk(2, dim=-1)
        return hidden + linear(silu(gate) * up, down)
