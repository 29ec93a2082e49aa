"""Gated delta rule in PyTorch, fp32 inside, one sequence a call.

Recurrence of one head (Yang et al., "Gated Delta Networks", 2024, eq. 10), with the state kept
as S [V, K] the way SGLang's pool stores it:

    S <- exp(g_t) S;  S <- S + beta_t (v_t - S k_t) k_t^T;  o_t = S q_t

`recurrent` walks it token by token and is the oracle. `chunked` solves 64 tokens at once in the
WY form (same paper, section 3.3). Every chunk starts from the fp32 state alone, so a prefill cut
at a multiple of 64 tokens and resumed from the state there equals the uncut one bit by bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK_TOKENS = 64


class GatedDeltaResult(NamedTuple):
    """What a prefill of T tokens leaves behind, all fp32."""

    output: Tensor  # [T, HV, V]
    state: Tensor  # [HV, V, K] after the last token
    chunk_states: Tensor  # [ceil(T / 64), HV, V, K] before tokens 0, 64, 128, ..


def prepare_query_key(
    query: Tensor, key: Tensor, num_value_heads: int, *, normalize: bool, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Query and key [T, H, K] as fp32 [T, HV, K]: unit length if `normalize`, query scaled."""
    query, key = query.float(), key.float()
    if normalize:
        query = query * torch.rsqrt(query.square().sum(-1, keepdim=True) + eps)
        key = key * torch.rsqrt(key.square().sum(-1, keepdim=True) + eps)
    group = num_value_heads // query.shape[1]
    if group > 1:
        query = query.repeat_interleave(group, dim=1)
        key = key.repeat_interleave(group, dim=1)
    return query * query.shape[-1] ** -0.5, key


def recurrent(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> GatedDeltaResult:
    """Token by token: the oracle of `chunked`, with the same arguments and result.

    KDA: log_decay [T, HV, K], one decay a key channel. The result of a run cut anywhere and resumed
    has the same bits.
    """
    num_tokens = query.shape[0]
    output = torch.empty_like(value)
    decay = log_decay.exp().view(num_tokens, query.shape[1], 1, -1)  # [T, HV, 1, 1 or K]
    chunk_states = []
    for token in range(num_tokens):
        if token % CHUNK_TOKENS == 0:
            chunk_states.append(state)
        state = state * decay[token]
        error = value[token] - torch.einsum("hvk,hk->hv", state, key[token])
        state = state + (error * beta[token, :, None])[..., None] * key[token, :, None]
        output[token] = torch.einsum("hvk,hk->hv", state, query[token])
    stacked = torch.stack(chunk_states) if chunk_states else state.new_empty(0, *state.shape)
    return GatedDeltaResult(output, state, stacked)


def chunked(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> GatedDeltaResult:
    """Prefill of one sequence, 64 tokens at a time.

    query, key [T, HV, K] (see `prepare_query_key`), value [T, HV, V], log_decay <= 0 and beta
    [T, HV], state [HV, V, K]; all fp32. Chunks count from the sequence's own first token. The
    arguments are left as they were.
    """
    num_tokens, num_heads, value_dim = value.shape
    query, key, value = (_split(x) for x in (query, key, value))  # [HV, N, 64, K or V]
    log_decay, beta = _split(log_decay[..., None]), _split(beta[..., None])  # [HV, N, 64, 1]
    num_chunks = query.shape[1]

    # What a chunk does whatever state it starts from, for all chunks at once.
    total = log_decay.cumsum(2)
    upper = torch.ones(CHUNK_TOKENS, CHUNK_TOKENS, dtype=torch.bool).triu(1)
    # masked before exp: above the diagonal the difference is positive and may overflow
    decay = (total - total.transpose(2, 3)).masked_fill(upper, float("-inf")).exp()
    from_start = total.exp()
    coupling = ((key * beta) @ key.transpose(2, 3) * decay).tril(-1)
    sides = torch.cat([value * beta, key * (beta * from_start)], dim=-1)
    # unitriangular: the diagonal of `coupling` (zeros) reads as ones
    solved = torch.linalg.solve_triangular(coupling, sides, upper=False, unitriangular=True)
    new_value, state_reader = solved.split([value_dim, key.shape[-1]], dim=-1)
    scores = query @ key.transpose(2, 3) * decay
    query = query * from_start
    key_to_end = (key * (total[:, :, -1:] - total).exp()).transpose(2, 3)  # [HV, N, K, 64]
    whole_decay = from_start[:, :, -1:]  # [HV, N, 1, 1]

    # The only sequential part: states [N + 1, HV, K, V], row n entering chunk n.
    states = torch.empty(num_chunks + 1, *state.transpose(1, 2).shape, dtype=torch.float32)
    states[0] = state.transpose(1, 2)
    output = torch.empty(num_chunks, num_heads, CHUNK_TOKENS, value_dim, dtype=torch.float32)
    for chunk in range(num_chunks):
        entering = states[chunk]
        delta = torch.baddbmm(new_value[:, chunk], state_reader[:, chunk], entering, alpha=-1)
        read = query[:, chunk] @ entering
        torch.baddbmm(read, scores[:, chunk], delta, out=output[chunk])
        kept = entering * whole_decay[:, chunk]
        torch.baddbmm(kept, key_to_end[:, chunk], delta, out=states[chunk + 1])
    flat = output.transpose(1, 2).reshape(-1, num_heads, value_dim)[:num_tokens]
    states = states.transpose(2, 3)
    return GatedDeltaResult(flat, states[num_chunks], states[:num_chunks])


class StatePassResult(NamedTuple):
    """What the sequential part of a chunked prefill of T tokens leaves behind, fp32."""

    new_values: Tensor  # [T, HV, V]
    states: Tensor  # [ceil(T / 64) + 1, HV, V, K], entering each chunk and after the last


def state_pass(
    key: Tensor,
    update: Tensor,
    reader: Tensor | None,
    log_gate: Tensor | None,
    state: Tensor,
    *,
    gate_base_2: bool = False,
) -> StatePassResult:
    """The twin of `triton.state_pass`: one sequence, dots of operands in the dtype of `key`.

    key [T, HV, K], update [T, HV, V], reader [T, HV, K] or None, log_gate [T, HV], [T, HV, K] or
    None, summed up within each chunk, state [HV, V, K] fp32 (or fp64, which is then kept).
    """
    exp = torch.exp2 if gate_base_2 else torch.exp
    wide = state.dtype
    states = [state]
    new_values = torch.empty_like(update, dtype=wide)
    for start in range(0, update.shape[0], CHUNK_TOKENS):
        stop = min(start + CHUNK_TOKENS, update.shape[0])
        value = update[start:stop].to(wide)
        if reader is not None:
            rounded = state.to(key.dtype).to(wide)
            value = value - torch.einsum("thk,hvk->thv", reader[start:stop].to(wide), rounded)
        new_values[start:stop] = value
        if log_gate is not None:
            to_end = log_gate[stop - 1].to(wide)
            if log_gate.dim() == 2:
                value = value * exp(to_end - log_gate[start:stop].to(wide))[..., None]
            # one factor a head or one a key channel: [HV, 1, 1] or [HV, 1, K]
            state = state * exp(to_end).view(state.shape[0], 1, -1)
        rounded = value.to(key.dtype).to(wide)
        state = state + torch.einsum("thv,thk->hvk", rounded, key[start:stop].to(wide))
        states.append(state)
    return StatePassResult(new_values, torch.stack(states))


def decode_update(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of each of B sequences: output [B, HV, V] and new states [B, HV, V, K].

    query, key [B, HV, K], value [B, HV, V], log_decay [B, HV] or [B, HV, K], beta [B, HV], states
    [B, HV, V, K]; fp32.
    """
    states = states * log_decay.exp().view(*value.shape[:2], 1, -1)
    error = value - (states @ key[..., None]).squeeze(-1)
    states = states + (error * beta[..., None])[..., None] * key[:, :, None, :]
    return (states @ query[..., None]).squeeze(-1), states


def _split(tensor: Tensor) -> Tensor:
    """[T, HV, D] -> [HV, N, 64, D], the last chunk filled with zeros (which change no state)."""
    num_tokens, num_heads, dim = tensor.shape
    missing = -num_tokens % CHUNK_TOKENS
    if missing:
        tensor = torch.cat([tensor, tensor.new_zeros(missing, num_heads, dim)])
    return tensor.view(-1, CHUNK_TOKENS, num_heads, dim).permute(2, 0, 1, 3).contiguous()
