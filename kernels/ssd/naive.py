"""Mamba2's recurrence in PyTorch, fp32 inside, one sequence a call.

Recurrence of one head (Dao and Gu, "Transformers are SSMs", 2024, section 6), state S [P, N]:

    S <- exp(dt_t A) S + dt_t x_t B_t^T;  y_t = S C_t

`recurrent` walks it token by token and is the oracle. `chunked` computes a chunk at once. SGLang's
kernels lay one chunk grid over all sequences of a batch, so `chunked` takes the place of its
sequence on that grid: a sequence that starts elsewhere is cut elsewhere, and rounds differently.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tokens(NamedTuple):
    """The inputs of T tokens, all fp32: H heads in G groups that share B and C."""

    x: Tensor  # [T, H, P]
    dt: Tensor  # [T, H], >= 0
    b: Tensor  # [T, G, N]
    c: Tensor  # [T, G, N]

    def span(self, start: int, stop: int) -> Tokens:
        """Views of the tokens start .. stop - 1."""
        return Tokens(*(rows[start:stop] for rows in self))


class SsdResult(NamedTuple):
    """What a prefill of T tokens leaves behind, all fp32."""

    output: Tensor  # [T, H, P]
    state: Tensor  # [H, P, N] after the last token
    starts: list[int]  # first token of each piece: 0, then every multiple of the chunk on the grid
    entering: list[Tensor]  # the state [H, P, N] before each of these tokens


def recurrent(tokens: Tokens, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Token by token: output [T, H, P] and the last state; rate A [H] < 0, state [H, P, N]."""
    output = torch.empty_like(tokens.x)
    for index in range(tokens.x.shape[0]):
        row = Tokens(*(rows[index : index + 1] for rows in tokens))
        step, states = decode_update(row, rate, state[None])
        output[index], state = step[0], states[0]
    return output, state


def chunked(
    tokens: Tokens, rate: Tensor, state: Tensor, *, chunk: int, offset: int = 0
) -> SsdResult:
    """Prefill of one sequence whose first token is the batch's token `offset`.

    rate A [H] < 0, state [H, P, N]; the arguments are left as they were.
    """
    num_tokens = tokens.x.shape[0]
    output = torch.empty_like(tokens.x)
    starts, entering = [], []
    start = 0
    while start < num_tokens:
        stop = min(start + chunk - (offset + start) % chunk, num_tokens)
        starts.append(start)
        entering.append(state)
        output[start:stop], state = _one_chunk(tokens.span(start, stop), rate, state)
        start = stop
    return SsdResult(output, state, starts, entering)


def state_at(tokens: Tokens, rate: Tensor, result: SsdResult, depth: int) -> Tensor:
    """The state [H, P, N] after the first `depth` tokens of a prefill that gave `result`.

    At a start of a piece it is that piece's own, elsewhere it is computed from there.
    """
    piece = max(i for i, start in enumerate(result.starts) if start <= depth)
    start, state = result.starts[piece], result.entering[piece]
    return state if start == depth else _one_chunk(tokens.span(start, depth), rate, state)[1]


def decode_update(tokens: Tokens, rate: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """One token of each of B sequences: output [B, H, P] and new states [B, H, P, N].

    The rows of `tokens` are sequences here; states [B, H, P, N].
    """
    group = tokens.x.shape[1] // tokens.b.shape[1]
    b, c = (rows.repeat_interleave(group, dim=1) for rows in (tokens.b, tokens.c))  # [B, H, N]
    decay = (tokens.dt * rate).exp()[..., None, None]
    update = (tokens.x * tokens.dt[..., None])[..., None] * b[:, :, None]
    states = states * decay + update
    return (states @ c[..., None]).squeeze(-1), states


def _one_chunk(tokens: Tokens, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Output [L, H, P] and the state after L tokens that share one chunk."""
    group = tokens.x.shape[1] // tokens.b.shape[1]
    b, c = (rows.transpose(0, 1).repeat_interleave(group, dim=0) for rows in (tokens.b, tokens.c))
    total = (tokens.dt * rate).cumsum(0).t()  # [H, L], falling
    length = total.shape[1]
    upper = torch.ones(length, length, dtype=torch.bool).triu(1)
    # masked before exp: above the diagonal the difference is positive and may overflow
    decay = (total[:, :, None] - total[:, None, :]).masked_fill(upper, float("-inf")).exp()
    values = (tokens.x * tokens.dt[..., None]).transpose(0, 1)  # [H, L, P]
    within = (c @ b.transpose(1, 2) * decay) @ values
    before = (c @ state.transpose(1, 2)) * total.exp()[..., None]
    to_end = (total[:, -1:] - total).exp()[..., None]
    kept = state * total[:, -1].exp()[:, None, None]
    return (within + before).transpose(0, 1), kept + (values * to_end).transpose(1, 2) @ b
