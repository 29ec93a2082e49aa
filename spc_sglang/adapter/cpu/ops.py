"""The part of `sgl_kernel` that SGLang's CPU engine calls for hybrid GDN models, in PyTorch.

Names and arguments are SGLang's (so `A_log`, `q`, `x`), the arithmetic is in kernels/. Where they
are registered: stand_in.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spc_sglang.kernels.causal_conv1d import naive as causal_conv1d
from spc_sglang.kernels.gated_delta import naive as gated_delta
from spc_sglang.kernels.gated_norm import naive as gated_norm

ACTIVATIONS = {None: False, "silu": True, "swish": True}

# Operators: torch.ops.sgl_kernel.*


def fused_rmsnorm_gated_cpu(rows: Tensor, weight: Tensor, gate: Tensor, eps: float) -> Tensor:
    return gated_norm.rms_norm_gated(rows, weight, gate, eps)


def fused_qk_gemma_rmsnorm_cpu(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, head_dim: int
) -> tuple[Tensor, Tensor]:
    query = gated_norm.gemma_rms_norm(q, q_weight, eps, head_dim)
    return query, gated_norm.gemma_rms_norm(k, k_weight, eps, head_dim)


def fused_qk_gemma_rmsnorm_with_gate_cpu(
    q_gate: Tensor,
    k: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    eps: float,
    head_dim: int,
    num_head: int,
) -> tuple[Tensor, Tensor, Tensor]:
    query, gate = gated_norm.split_query_gate(q_gate, num_head, head_dim)
    query, key = fused_qk_gemma_rmsnorm_cpu(query, k, q_weight, k_weight, eps, head_dim)
    return query, key, gate


def fused_sigmoid_mul_cpu(rows: Tensor, gate: Tensor) -> None:
    gated_norm.sigmoid_multiply_(rows, gate)


def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    mixed_qkvz: Tensor,
    mixed_ba: Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return gated_norm.split_qkvzba(
        mixed_qkvz, mixed_ba, num_heads_qk * head_qk, num_heads_v * head_v, num_heads_v
    )


def fused_gdn_gating_cpu(
    A_log: Tensor, a: Tensor, b: Tensor, dt_bias: Tensor
) -> tuple[Tensor, Tensor]:
    log_decay, beta = gated_norm.delta_gates(A_log, a, b, dt_bias)
    return log_decay[None], beta.to(b.dtype)[None]


def fused_sigmoid_gating_delta_rule_update_cpu(
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
    use_qk_l2norm_in_kernel: bool,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
) -> Tensor:
    """Decode: q, k [1, B, H, K], v [1, B, HV, V], one token a row, states updated in the pool."""
    num_rows, num_value_heads = v.shape[1:3]
    if cu_seqlens.numel() - 1 != num_rows:
        raise NotImplementedError("decode with several tokens a sequence is not provided on a CPU")
    log_decay, beta = gated_norm.delta_gates(
        A_log, a, b, dt_bias, softplus_beta=softplus_beta, softplus_threshold=softplus_threshold
    )
    query, key = gated_delta.prepare_query_key(
        q[0], k[0], num_value_heads, normalize=use_qk_l2norm_in_kernel
    )
    output = torch.zeros_like(v)
    rows = (initial_state_indices >= 0).nonzero()[:, 0]  # padding rows have no slot
    slots = initial_state_indices[rows].long()
    step, states = gated_delta.decode_update(
        query[rows],
        key[rows],
        v[0, rows].float(),
        log_decay.view(num_rows, -1)[rows],
        beta.view(num_rows, -1)[rows],
        initial_state_source[slots].float(),
    )
    output[0, rows] = step.to(v.dtype)
    initial_state_source[slots] = states.to(initial_state_source.dtype)
    return output


# Functions of the module tree


def chunk_gated_delta_rule_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    cu_seqlens: Tensor,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    initial_state_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Prefill: output [1, T, HV, V], last states [B, HV, V, K], states every 64 tokens.

    The last is [1, sum(ceil(len / 64)), HV, V, K], fp32. Each sequence is computed by itself, so
    a request gives the same bits alone and in a batch. The pool rows are updated.
    """
    assert not head_first and q.shape[0] == 1 and initial_state_indices is not None
    query, key = gated_delta.prepare_query_key(
        q[0], k[0], v.shape[2], normalize=use_qk_l2norm_in_kernel
    )
    value, log_decay, rate = v[0].float(), g[0].float(), beta[0].float()
    output = torch.zeros_like(v)
    starts, slots = cu_seqlens.tolist(), initial_state_indices.tolist()
    last_states = torch.zeros(len(slots), *initial_state.shape[1:], dtype=torch.float32)
    chunk_states = []
    for row, slot in enumerate(slots[: len(starts) - 1]):
        tokens = slice(starts[row], starts[row + 1])
        # a padding row has no slot: its result is dropped, but its chunks keep their places
        state = initial_state[slot].float() if slot >= 0 else last_states[row]
        result = gated_delta.chunked(
            query[tokens], key[tokens], value[tokens], log_decay[tokens], rate[tokens], state
        )
        chunk_states.append(result.chunk_states)
        if slot >= 0:
            output[0, tokens] = result.output.to(v.dtype)
            initial_state[slot] = result.state.to(initial_state.dtype)
            last_states[row] = result.state
    joined = chunk_states[0] if len(chunk_states) == 1 else torch.cat(chunk_states)
    return output, last_states, joined[None]


def causal_conv1d_fn_cpu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None = None,
    conv_states: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    cache_indices: Tensor | None = None,
    query_start_loc: Tensor | None = None,
    seq_lens_cpu: list[int] | None = None,
) -> Tensor:
    """Prefill: x [D, T] to [D, T]; windows [slots, D, W - 1] updated in the pool."""
    assert conv_states is not None and cache_indices is not None and query_start_loc is not None
    tokens_first = x.t()
    output = torch.empty(tokens_first.shape, dtype=x.dtype)
    starts, slots = query_start_loc.tolist(), cache_indices.tolist()
    resumed = [False] * len(slots) if has_initial_state is None else has_initial_state.tolist()
    for row, slot in enumerate(slots[: len(starts) - 1]):
        tokens = slice(starts[row], starts[row + 1])
        if starts[row] == starts[row + 1]:
            continue
        window = conv_states[slot] if slot >= 0 and resumed[row] else None
        output[tokens], window = causal_conv1d.prefill(
            tokens_first[tokens], weight, bias, window, activate=ACTIVATIONS[activation]
        )
        if slot >= 0:
            conv_states[slot] = window.to(conv_states.dtype)
    return output.t()


def causal_conv1d_update_cpu(
    x: Tensor,
    conv_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    conv_state_indices: Tensor | None = None,
    **verification: object,
) -> Tensor:
    """Decode: x [B, D] to [B, D]; windows [slots, D, W - 1] updated in the pool."""
    assert conv_state_indices is not None
    if x.dim() != 2 or verification:
        raise NotImplementedError(
            "causal_conv1d_update_cpu: verifying speculative drafts is not provided on a CPU; "
            "start the server without --speculative-algorithm"
        )
    valid = conv_state_indices >= 0
    slots = conv_state_indices.clamp(min=0).long()
    output, windows = causal_conv1d.decode_update(
        x, weight, bias, conv_states[slots], activate=ACTIVATIONS[activation]
    )
    conv_states[slots[valid]] = windows[valid].to(conv_states.dtype)
    return output


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write each request's new token slots into its row of the token table."""
    done = 0
    spans = (req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist())
    for row, start, end in zip(*spans, strict=True):
        slots = out_cache_loc[done : done + end - start]
        req_to_token[row, start:end] = slots.to(req_to_token.dtype)
        done += end - start
