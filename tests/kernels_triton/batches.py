"""Random inputs of a state pass, and the naive twin run over a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from spc_sglang.kernels.gated_delta import naive
from spc_sglang.kernels.gated_delta.plan import CHUNK_TOKENS, SnapshotPlan
from spc_sglang.kernels.gated_delta.triton import StatePassResult, state_pass

# gate per head or channel, with or without the delta rule
RECURRENCES = ("gdn", "kda", "delta", "gla", "ssd")


@dataclass(frozen=True)
class Batch:
    """Tensors as `state_pass` takes them: [1, T, heads, dim], gates summed within chunks."""

    key: Tensor
    update: Tensor
    reader: Tensor | None
    log_gate: Tensor | None

    def part(self, start: int, stop: int) -> Batch:
        """The same for a range of flat tokens that begins at a chunk."""
        cut = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{k: None if x is None else x[:, start:stop].clone() for k, x in cut.items()})


def sum_within_chunks(rows: Tensor, lengths: list[int]) -> Tensor:
    """Cumulative sums over tokens [1, T, ...] that restart at every chunk of every sequence."""
    parts = [
        chunk.cumsum(1)
        for sequence in rows.split(lengths, dim=1)
        for chunk in sequence.split(CHUNK_TOKENS, dim=1)
    ]
    return torch.cat(parts, dim=1)


def make_batch(
    recurrence: str,
    lengths: list[int],
    *,
    dtype: torch.dtype,
    key_dim: int = 32,
    value_dim: int = 32,
    heads: int = 2,
    key_heads: int = 1,
    seed: int = 0,
) -> Batch:
    """Slow gates, so that the state at a cut still matters at the end."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)

    def normal(*size: int) -> Tensor:
        return torch.randn(1, tokens, *size, generator=generator)

    key = normalize(normal(key_heads, key_dim), dim=-1).to(dtype)
    reader = (0.3 * normalize(normal(heads, key_dim), dim=-1)).to(dtype)
    by_head = logsigmoid(normal(heads) + 4)
    by_channel = logsigmoid(normal(heads, key_dim) + 4)
    gate = {"gdn": by_head, "ssd": by_head, "kda": by_channel, "gla": by_channel, "delta": None}
    log_gate = gate[recurrence]
    return Batch(
        key,
        normal(heads, value_dim).to(dtype),
        None if recurrence in ("gla", "ssd") else reader,
        None if log_gate is None else sum_within_chunks(log_gate, lengths),
    )


def run(batch: Batch, pool: Tensor, slots: list[int], plan: SnapshotPlan, **options: object):
    """The Triton state pass on `pool`, in place."""
    rows = torch.tensor(slots, dtype=torch.int32)
    tensors = (batch.key, batch.update, batch.reader, batch.log_gate)
    result: StatePassResult = state_pass(*tensors, pool, rows, plan, **options)
    return result


def run_twin(batch: Batch, lengths: list[int], initial: Tensor) -> list[naive.StatePassResult]:
    """The naive twin, sequence by sequence, from states [N, HV, V, K]."""
    group = batch.update.shape[2] // batch.key.shape[2]
    wide = replace(batch, key=batch.key.repeat_interleave(group, dim=2))
    results = []
    bounds = pairwise(accumulate(lengths, initial=0))
    for (start, stop), state in zip(bounds, initial, strict=True):
        part = wide.part(start, stop)
        tensors = (part.key, part.update, part.reader, part.log_gate)
        rows = [None if x is None else x[0] for x in tensors]
        results.append(naive.state_pass(*rows, state))  # type: ignore[arg-type]
    return results


def error(result: Tensor, reference: Tensor) -> float:
    """Largest difference over the largest reference value."""
    if reference.numel() == 0:
        return 0.0
    difference = (result.double() - reference.double()).abs().max()
    return float(difference / reference.double().abs().max().clamp_min(1e-30))
