"""What SGLang's Kimi Delta Attention layers call, in PyTorch; names and arguments are SGLang's.

The arithmetic is in kernels/gated_delta, token by token. See plugin.py for where each function is
put.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spc_sglang.adapter.cpu.ops import SEVERAL_TOKENS, decode_rows, prefill_sequences
from spc_sglang.kernels.gated_delta import naive as gated_delta
from spc_sglang.kernels.gated_norm import naive as gated_norm


def chunk_kda_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor,
    initial_state_indices: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None = None,
    output_intermediate_states: bool = False,
    track_state: Tensor | None = None,
    track_chunk_idx: Tensor | None = None,
    beta_is_raw: bool = False,
    **unused: object,
) -> Tensor | tuple[Tensor, Tensor]:
    """Prefill: output [1, T, HV, V] and, if asked for, states every 64 tokens; pool rows updated.

    The states are fp32 [1, sum(ceil(len / 64)), HV, V, K]. Row i of `track_state` gets state
    `track_chunk_idx[i]` of sequence i, unless that is negative.
    """
    log_decay, rate = _gates(g, beta, A_log, dt_bias, lower_bound, k.shape[-2:])
    if not beta_is_raw:
        rate = beta.reshape(rate.shape).float()
    query, key = gated_delta.prepare_query_key(
        q[0], k[0], v.shape[2], normalize=use_qk_l2norm_in_kernel
    )
    tokens = (query, key, v[0].float(), log_decay, rate)
    output, _, states = prefill_sequences(
        gated_delta.recurrent, tokens, initial_state, initial_state_indices, cu_seqlens
    )
    if track_state is not None and track_chunk_idx is not None:
        for row, (chunk, own) in enumerate(zip(track_chunk_idx.tolist(), states, strict=False)):
            if chunk >= 0:
                track_state[row] = own[chunk]
    answer = output[None].to(v.dtype)
    return (answer, torch.cat(states)[None]) if output_intermediate_states else answer


def kda_decode_cpu(
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    initial_state_source: Tensor,
    initial_state_indices: Tensor,
    cu_seqlens: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    is_kda: bool = False,
    lower_bound: float | None = None,
    disable_state_update: bool = False,
    **unused: object,
) -> Tensor:
    """Decode: q, k [1, B, H, K], v [1, B, HV, V], one token a row, states updated in the pool.

    SGLang's name is fused_sigmoid_gating_delta_rule_update.
    """
    if not is_kda or disable_state_update:
        raise NotImplementedError(SEVERAL_TOKENS)
    log_decay, beta = _gates(a, b, A_log, dt_bias, lower_bound, k.shape[-2:])
    query, key = gated_delta.prepare_query_key(
        q[0], k[0], v.shape[2], normalize=use_qk_l2norm_in_kernel
    )
    rows = (query, key, v[0].float(), log_decay, beta)
    step = decode_rows(rows, initial_state_source, initial_state_indices, cu_seqlens)
    return step[None].to(v.dtype)


def rms_norm_gated_forward(
    norm: torch.nn.Module,
    x: Tensor,
    g: Tensor,
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> Tensor:
    """FusedRMSNormGated.forward: x, g [.., D]; SiLU or, in Kimi-Linear, sigmoid of the gate."""
    if residual is not None or prenorm or residual_in_fp32:
        raise NotImplementedError("FusedRMSNormGated with a residual is not provided on a CPU")
    weight = torch.ones(x.shape[-1]) if norm.weight is None else norm.weight
    sigmoid = norm.activation == "sigmoid"
    return gated_norm.rms_norm_gated(x, weight, g, norm.eps, sigmoid=sigmoid)


def _gates(
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None,
    heads_and_dim: torch.Size,
) -> tuple[Tensor, Tensor]:
    """Log decay [T, HV, K] and sigmoid(b) [T, HV], fp32."""
    if lower_bound is not None:
        raise NotImplementedError("KDA's bounded gate is not provided on a CPU")
    num_heads, key_dim = heads_and_dim
    return gated_norm.delta_gates(
        a_log.reshape(num_heads, 1),
        a.reshape(-1, num_heads, key_dim),
        b.reshape(-1, num_heads),
        dt_bias.reshape(num_heads, key_dim),
    )
