"""Which states a prefill stores, planned once per forward on the host.

A prefill walks each sequence in chunks of 64 tokens counted from the sequence's first new token,
and only the states between chunks exist. A plan lists, per sequence, the wanted chunk boundaries
in ascending order with the pool row of each, so that the kernel reads one entry ahead instead of
asking at every chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

CHUNK_TOKENS = 64
END = -1  # closes the list of a sequence; no chunk has this number


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Layout and wanted states of N sequences, int32 on one device.

    cu_tokens: first token of each sequence in the batch, [N + 1].
    chunk_base: first chunk of each sequence in the batch, [N + 1].
    first: where the list of a sequence begins in `chunk` and `slot`, [N].
    chunk: ascending chunk numbers of a sequence, then END, [P + N]. Chunk c stands for the
        state after c * 64 tokens, the last number for the state after the sequence.
    slot: pool row for each of these, -1 to store nothing, [P + N].
    """

    cu_tokens: Tensor
    chunk_base: Tensor
    first: Tensor
    chunk: Tensor
    slot: Tensor
    num_chunks: int
    num_snapshots: int

    @property
    def num_sequences(self) -> int:
        return self.first.numel()

    def with_rows(self, rows: Tensor) -> SnapshotPlan:
        """The same plan with each planned slot i exchanged for rows[i], on the device of `rows`.

        For pool rows that only the device knows: plan indices 0, 1, .. and exchange them here.
        """
        chosen = rows.to(torch.int32)[self.slot.clamp(min=0)]
        return replace(self, slot=chosen.where(self.slot >= 0, -1))


def plan_snapshots(
    lengths: Sequence[int],
    prefix_lengths: Sequence[int] | None = None,
    wanted: Sequence[Mapping[int, int]] | None = None,
    device: torch.device | str = "cpu",
) -> SnapshotPlan:
    """Plan for sequences of `lengths` new tokens behind `prefix_lengths` old ones (default 0).

    wanted[n] maps an absolute depth of sequence n to a pool row. ValueError for a depth outside
    the new tokens or off their chunk grid, naming the two nearest depths that exist. One copy to
    `device`, no synchronization; O(N + P log P).
    """
    prefix_lengths = prefix_lengths or [0] * len(lengths)
    wanted = wanted or [{}] * len(lengths)
    chunk: list[int] = []
    slot: list[int] = []
    first: list[int] = []
    for row, (length, prefix) in enumerate(zip(lengths, prefix_lengths, strict=True)):
        first.append(len(chunk))
        for depth in sorted(wanted[row]):
            chunk.append(_chunk_of(depth, prefix, length, row))
            slot.append(wanted[row][depth])
        chunk.append(END)
        slot.append(-1)
    cu_tokens = list(accumulate(lengths, initial=0))
    chunk_base = list(accumulate((-(-n // CHUNK_TOKENS) for n in lengths), initial=0))
    parts = (cu_tokens, chunk_base, first, chunk, slot)
    flat = torch.tensor([x for part in parts for x in part], dtype=torch.int32)
    vectors = flat.to(device, non_blocking=True).split([len(part) for part in parts])
    return SnapshotPlan(*vectors, chunk_base[-1], len(chunk) - len(lengths))


def nearest_depths(depth: int, prefix: int, length: int) -> tuple[int, int]:
    """The deepest stored depth <= `depth` and the next deeper one, both inside the new tokens."""
    end = prefix + length
    below = prefix + max(0, min(depth, end) - prefix) // CHUNK_TOKENS * CHUNK_TOKENS
    if depth >= end:
        return (below if below < end else max(prefix, end - CHUNK_TOKENS)), end
    return below, min(below + CHUNK_TOKENS, end)


def _chunk_of(depth: int, prefix: int, length: int, row: int) -> int:
    computed = depth - prefix
    if computed == length:
        return -(-length // CHUNK_TOKENS)
    if 0 <= computed < length and computed % CHUNK_TOKENS == 0:
        return computed // CHUNK_TOKENS
    low, high = nearest_depths(depth, prefix, length)
    raise ValueError(
        f"depth {depth} of sequence {row} has no state of its own: its new tokens are "
        f"{prefix}..{prefix + length} in chunks of {CHUNK_TOKENS}; the nearest depths that have "
        f"one are {low} and {high}"
    )
