"""Host arithmetic of captures in one prefill batch; a state is (batch row, computed tokens)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from typing import Any

from spc_sglang.adapter.capture import Capture
from spc_sglang.kernels.gated_delta.plan import CHUNK_TOKENS


@dataclass(frozen=True, slots=True)
class Extents:
    """Host view of one prefill batch.

    own: states that SGLang captures itself from inside the forward, in the order of its
        `track_ssm_h_dst`; None if the host does not know them.
    """

    prefix_lens: list[int]
    extend_lens: list[int]
    own: list[tuple[int, int]] | None

    @classmethod
    def of(cls, metadata: Any, forward_batch: Any, chunk: int) -> Extents:
        prefix_lens = list(forward_batch.extend_prefix_lens_cpu)
        extend_lens = list(forward_batch.extend_seq_lens_cpu)
        destinations = metadata.track_ssm_h_dst if metadata.has_mamba_track_mask else None
        if destinations is None or destinations.numel() == 0:
            return cls(prefix_lens, extend_lens, [])
        mask = forward_batch.mamba_prefill_track_mask_cpu
        track_lens = forward_batch.mamba_track_seqlens_cpu
        if mask is None or track_lens is None:
            return cls(prefix_lens, extend_lens, None)
        computed = [end - prefix for end, prefix in zip(track_lens, prefix_lens, strict=False)]
        rows = [row for row, tracked in enumerate(mask) if tracked and computed[row] % chunk]
        own = [(row, computed[row] // chunk * chunk) for row in rows]
        return cls(prefix_lens, extend_lens, own)

    def state_of(self, capture: Capture) -> tuple[int, int]:
        return capture.row, capture.depth - self.prefix_lens[capture.row]

    def is_end(self, state: tuple[int, int]) -> bool:
        return state[1] == self.extend_lens[state[0]]


def packed_rows(
    states: Sequence[tuple[int, int]], extend_lens: Sequence[int]
) -> tuple[int, list[int], list[int]]:
    """n, first row of each sequence [N + 1], and row of each state, for states after n tokens.

    n is the greatest common divisor of the computed tokens; AssertionError below a chunk.
    """
    every = gcd(*(computed for _, computed in states))
    assert every >= CHUNK_TOKENS and every % CHUNK_TOKENS == 0, states
    starts = list(accumulate((length // every for length in extend_lens), initial=0))
    return every, starts, [starts[row] + computed // every - 1 for row, computed in states]


def mapped_rows(
    states: Sequence[tuple[int, int]], extend_lens: Sequence[int], chunk: int
) -> tuple[list[int], list[int]]:
    """First boundary of each sequence [N + 1], and per boundary the index of its state or -1."""
    starts = list(accumulate((length // chunk for length in extend_lens), initial=0))
    destinations = [-1] * starts[-1]
    for index, (row, computed) in enumerate(states):
        boundary = starts[row] + computed // chunk - 1
        assert computed % chunk == 0 and destinations[boundary] == -1, (states, chunk)
        destinations[boundary] = index
    return starts, destinations
