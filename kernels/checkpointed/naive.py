"""Token-by-token oracle of the checkpointed operators, one sequence a call, any float dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class RecurrentResult(NamedTuple):
    """In the dtype of the state."""

    output: Tensor  # [T, HV, V]
    state: Tensor  # [HV, K, V] after the last token
    checkpoints: Tensor  # [P, HV, K, V]


def recurrent(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_gate: Tensor,
    beta: Tensor | None,
    state: Tensor,
    positions: Sequence[int],
    scale: float | None = None,
) -> RecurrentResult:
    """S <- decay S; S <- S + k (beta (v - S^T k))^T, or + k v^T where beta is None; o = S^T q.

    query, key [T, HV, K], value [T, HV, V], log_gate [T, HV] (GDN, simple GLA) or [T, HV, K]
    (KDA), beta [T, HV], state [HV, K, V]. The query is scaled by `scale`, default K ** -0.5.
    """
    num_tokens, num_heads, key_dim = query.shape
    query, key, value, log_gate = (x.to(state.dtype) for x in (query, key, value, log_gate))
    query = query * (key_dim**-0.5 if scale is None else scale)
    decay = log_gate.exp().view(num_tokens, num_heads, -1, 1)
    states = [state]
    output = torch.empty_like(value)
    for token in range(num_tokens):
        state = state * decay[token]
        change = value[token]
        if beta is not None:
            read = torch.einsum("hkv,hk->hv", state, key[token])
            change = (change - read) * beta[token].to(state.dtype)[:, None]
        state = state + key[token][..., None] * change[:, None, :]
        output[token] = torch.einsum("hkv,hk->hv", state, query[token])
        states.append(state)
    chosen = [states[position] for position in positions]
    checkpoints = torch.stack(chosen) if chosen else state.new_empty(0, *state.shape)
    return RecurrentResult(output, state, checkpoints)
