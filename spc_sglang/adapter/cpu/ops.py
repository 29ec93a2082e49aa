"""The part of `sgl_kernel` that SGLang's CPU engine calls for hybrid GDN models, in PyTorch.

Names and arguments are SGLang's (so `A_log`, `q`, `x`), the arithmetic is in kernels/. Where they
are registered: stand_in.py.
"""

from __future__ import annotations

from collections.abc import Callable

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
    log_decay, beta = gated_norm.delta_gates(
        A_log, a, b, dt_bias, softplus_beta=softplus_beta, softplus_threshold=softplus_threshold
    )
    query, key = gated_delta.prepare_query_key(
        q[0], k[0], v.shape[2], normalize=use_qk_l2norm_in_kernel
    )
    rows = (query, key, v[0].float(), log_decay.view(len(v[0]), -1), beta.view(len(v[0]), -1))
    step = decode_rows(rows, initial_state_source, initial_state_indices, cu_seqlens)
    return step[None].to(v.dtype)


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
    tokens = (query, key, v[0].float(), g[0].float(), beta[0].float())
    output, last_states, chunk_states = prefill_sequences(
        gated_delta.chunked, tokens, initial_state, initial_state_indices, cu_seqlens
    )
    joined = chunk_states[0] if len(chunk_states) == 1 else torch.cat(chunk_states)
    return output[None].to(v.dtype), last_states, joined[None]


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


# Shared with KDA, whose decay has a value a key channel

DeltaRows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, key [T, HV, K], value [T, HV, V], log decay [T, HV] or [T, HV, K], beta [T, HV]; fp32."""
SEVERAL_TOKENS = "decode with several tokens a sequence is not provided on a CPU"


def prefill_sequences(
    kernel: Callable[..., gated_delta.GatedDeltaResult],
    tokens: DeltaRows,
    pool: Tensor,
    indices: Tensor,
    cu_seqlens: Tensor,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Each sequence by itself: output [T, HV, V], last states [B, HV, V, K], states by sequence.

    All fp32; the rows of the pool are updated. A padding row has no slot: its result is dropped,
    but its chunks keep their places.
    """
    starts, slots = cu_seqlens.tolist(), indices.tolist()
    output = torch.zeros_like(tokens[2])
    last_states = torch.zeros(len(slots), *pool.shape[1:], dtype=torch.float32)
    chunk_states = []
    for row, slot in enumerate(slots[: len(starts) - 1]):
        own = slice(starts[row], starts[row + 1])
        state = pool[slot].float() if slot >= 0 else last_states[row]
        result = kernel(*(part[own] for part in tokens), state)
        chunk_states.append(result.chunk_states)
        if slot >= 0:
            output[own] = result.output
            pool[slot] = result.state.to(pool.dtype)
            last_states[row] = result.state
    return output, last_states, chunk_states


def decode_rows(tokens: DeltaRows, pool: Tensor, indices: Tensor, cu_seqlens: Tensor) -> Tensor:
    """One token a row: output [B, HV, V] in fp32; the rows of the pool are updated."""
    output = torch.zeros_like(tokens[2])
    if cu_seqlens.numel() - 1 != len(output):
        raise NotImplementedError(SEVERAL_TOKENS)
    rows = (indices >= 0).nonzero()[:, 0]  # padding rows have no slot
    slots = indices[rows].long()
    output[rows], states = gated_delta.decode_update(
        *(part[rows] for part in tokens), pool[slots].float()
    )
    pool[slots] = states.to(pool.dtype)
    return output
