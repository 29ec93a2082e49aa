"""Chunked prefills of flash-linear-attention that also return states on their way.

Each takes what the library's own function takes, and `positions`: for each sequence the token
counts, from 0 to its length, after which the fp32 state is wanted. Only multiples of 64 and the
length itself have a state. A prefill resumed from a checkpoint equals the uncut one bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spc_sglang.kernels.checkpointed.capture import capturing
from spc_sglang.kernels.slot_copy.triton import copy_rows

Positions = Sequence[int] | Sequence[Sequence[int]]


class CheckpointedResult(NamedTuple):
    """Result of a prefill of N sequences with P positions in all."""

    output: Tensor  # [B, T, HV, V], dtype of the values
    final_state: Tensor  # [N, HV, K, V] fp32
    checkpoints: Tensor  # [P, HV, K, V] fp32, sequence by sequence in the order given


def gated_delta_rule_with_checkpoints(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    positions: Positions,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    **options: Any,
) -> CheckpointedResult:
    """Gated DeltaNet: q, k [B, T, H, K], v [B, T, HV, V], log gates g and beta [B, T, HV].

    initial_state [N, HV, K, V]; cu_seqlens [N + 1] with B = 1, read once on the host. `options` go
    to `chunk_gated_delta_rule`. ValueError for positions off the chunk grid.
    """
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule as function

    tensors = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    return _run(function, tensors, positions, initial_state, cu_seqlens, options)


def kda_with_checkpoints(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    positions: Positions,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    **options: Any,
) -> CheckpointedResult:
    """Kimi Delta Attention: as Gated DeltaNet, but with a log gate a channel, g [B, T, HV, K]."""
    from fla.ops.kda import chunk_kda as function

    tensors = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    return _run(function, tensors, positions, initial_state, cu_seqlens, options)


def simple_gla_with_checkpoints(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    positions: Positions,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    **options: Any,
) -> CheckpointedResult:
    """Simple GLA, the library's equivalent of Mamba-2: no delta rule, g [B, T, H]."""
    from fla.ops.simple_gla import chunk_simple_gla as function

    tensors = {"q": q, "k": k, "v": v, "g": g}
    return _run(function, tensors, positions, initial_state, cu_seqlens, options)


def restore(checkpoints: Tensor, rows: Sequence[int]) -> Tensor:
    """A fresh initial state [N, HV, K, V] from rows of `checkpoints`; a row may serve many."""
    limit = checkpoints.shape[0]
    wrong = [row for row in rows if not 0 <= row < limit]
    if wrong:
        raise ValueError(f"rows {wrong} are outside the {limit} checkpoints")
    state = torch.empty_like(checkpoints[:1]).repeat(len(rows), 1, 1, 1)
    source = torch.tensor(rows, dtype=torch.int32, device=checkpoints.device)
    target = torch.arange(len(rows), dtype=torch.int32, device=checkpoints.device)
    copy_rows(checkpoints[None], source, state[None], target)
    return state


def _run(
    function: Callable[..., tuple[Tensor, Tensor]],
    tensors: dict[str, Tensor],
    positions: Positions,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    options: dict[str, Any],
) -> CheckpointedResult:
    query = tensors["q"]
    if cu_seqlens is None:
        lengths = [query.shape[1]] * query.shape[0]
    else:
        lengths = cu_seqlens.diff().tolist()
    by_sequence = _by_sequence(positions, len(lengths))
    with capturing(lengths, by_sequence, query.device) as capture:
        output, final_state = function(
            **tensors,
            initial_state=initial_state,
            output_final_state=True,
            cu_seqlens=cu_seqlens,
            **options,
        )[:2]
    if len(capture.states) != 1:
        raise RuntimeError(f"{function.__name__} made no states of its own: another backend ran")
    return CheckpointedResult(output, final_state, capture.states[0])


def _by_sequence(positions: Positions, num_sequences: int) -> list[list[int]]:
    """Positions as one list a sequence; a flat list is meant for the only sequence."""
    if all(isinstance(position, int) for position in positions):
        positions = [positions] if num_sequences == 1 else positions  # type: ignore[list-item]
    if len(positions) != num_sequences or any(isinstance(p, int) for p in positions):
        raise ValueError(f"positions must be {num_sequences} lists of depths, not {positions}")
    return [list(p) for p in positions]  # type: ignore[arg-type]
