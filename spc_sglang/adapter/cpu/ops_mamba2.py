"""What SGLang's Mamba2 layers call, in PyTorch; names and arguments are SGLang's.

The arithmetic is in kernels/ssd. See plugin.py for where each function is put.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from spc_sglang.kernels.ssd import naive as ssd


def mamba_chunk_scan_combined_cpu(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    *,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    cu_seqlens: Tensor,
    dt_softplus: bool = False,
    out: Tensor,
    state_dtype: torch.dtype,
    track_seq_idx: Tensor | None = None,
    track_end_locs: Tensor | None = None,
    **unused: object,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Prefill: x [1, T, H, P] into `out`, and states [.., H, P, N] in `state_dtype`.

    Returns the states entering each chunk of the batch [1, ceil(T / chunk_size), ..], the last of
    each sequence [B, ..], and those at `track_end_locs` of sequences `track_seq_idx` [1, R, ..].
    """
    assert unused.get("z") is None
    tokens = ssd.Tokens(
        x[0].float(), _steps(dt[0], dt_bias, dt_softplus), B[0].float(), C[0].float()
    )
    num_tokens, num_heads, head_dim = tokens.x.shape
    shape = (num_heads, head_dim, tokens.b.shape[-1])
    starts = cu_seqlens.tolist()
    entering = torch.zeros(-(-num_tokens // chunk_size), *shape, dtype=state_dtype)
    last = torch.zeros(len(starts) - 1, *shape, dtype=state_dtype)
    wanted = _wanted(track_seq_idx, track_end_locs)
    tracked = torch.zeros(len(wanted), *shape, dtype=state_dtype)
    for row, first in enumerate(starts[:-1]):
        own = tokens.span(first, starts[row + 1])
        begin = torch.zeros(shape) if initial_states is None else initial_states[row].float()
        result = ssd.chunked(own, A.float(), begin, chunk=chunk_size, offset=first)
        out[0, first : starts[row + 1]] = _with_skip(result.output, own.x, D).to(out.dtype)
        last[row] = result.state
        for start, state in zip(result.starts, result.entering, strict=True):
            if (first + start) % chunk_size == 0:
                entering[(first + start) // chunk_size] = state
        for index, (sequence, end) in enumerate(wanted):
            if sequence == row:
                tracked[index] = ssd.state_at(own, A.float(), result, end - first)
    return entering[None], last, tracked[None] if wanted else None


def selective_state_update_cpu(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    *,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor,
    out: Tensor,
    **unused: object,
) -> None:
    """Decode: x [B, H, P] into `out`, states [slots, H, P, N] updated in the pool.

    dt, A, D and dt_bias come expanded to one value a channel, all equal within a head.
    """
    if x.dim() != 3 or unused.get("disable_state_update"):
        raise NotImplementedError(
            "selective_state_update_cpu: verifying speculative drafts is not provided on a CPU; "
            "start the server without --speculative-algorithm"
        )
    rows = (state_batch_indices >= 0).nonzero()[:, 0]  # padding rows have no slot
    slots = state_batch_indices[rows].long()
    steps = _steps(dt[..., 0], None if dt_bias is None else dt_bias[:, 0], dt_softplus)
    every = ssd.Tokens(x.float(), steps, B.float(), C.float())
    tokens = ssd.Tokens(*(part[rows] for part in every))
    output, states = ssd.decode_update(tokens, A[:, 0, 0].float(), state[slots].float())
    out.zero_()
    skip = None if D is None else D[:, 0]
    out[rows] = _with_skip(output, tokens.x, skip).to(out.dtype)
    state[slots] = states.to(state.dtype)


def _steps(dt: Tensor, bias: Tensor | None, positive: bool) -> Tensor:
    wide = dt.float() if bias is None else dt.float() + bias.float()
    return softplus(wide) if positive else wide


def _with_skip(output: Tensor, x: Tensor, skip: Tensor | None) -> Tensor:
    """output + skip * x, skip [H]."""
    return output if skip is None else output + x * skip.float()[:, None]


def _wanted(sequences: Tensor | None, ends: Tensor | None) -> list[tuple[int, int]]:
    if sequences is None or ends is None:
        return []
    return list(zip(sequences.tolist(), ends.tolist(), strict=True))
