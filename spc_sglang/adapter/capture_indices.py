"""Captures through index vectors alone: kernels that can give several states by themselves.

Each class appends to the vectors that SGLang 0.5.23 builds for its own, single capture a sequence.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch

from spc_sglang.adapter.capture import Capture, CapturePlan
from spc_sglang.adapter.capture_backend import CaptureBackend
from spc_sglang.adapter.capture_extents import Extents, mapped_rows, packed_rows
from spc_sglang.adapter.track_rows import append_rows


class IndexRows(CaptureBackend):
    """The kernel hands out all states as exact as the pool holds them: `track_rows`."""

    def capture(self, plan: CapturePlan, forward_batch: object) -> None:
        append_rows(self.backend, plan, forward_batch)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        raise NotImplementedError


class KdaRows(IndexRows):
    """KDA: the states between chunks serve all captures.

    SGLang reads its own from a snapshot with one row a sequence, which has no room for ours. Where
    the states are as wide as the snapshot, they hold the same bits.
    """

    def capture(self, plan: CapturePlan, forward_batch: object) -> None:
        super().capture(plan, forward_batch)
        if plan.live():
            self.backend.forward_metadata.track_chunk_idx = None


class PackedStates(CaptureBackend):
    """FlashInfer GDN: states after every n tokens, n one multiple of 64 for the whole batch."""

    @property
    def chunk(self) -> int:
        """What SGLang's own capture goes by: the larger of 64 and the page size."""
        every = getattr(self.backend.forward_metadata, "state_checkpoint_every_n_tokens", 0)
        return every or super().chunk

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        if extents.own is None:
            return []
        slots, states, inside = self._lay_out(captures, extents)
        wanted = [*extents.own, *(states[i] for i in inside)]
        if not wanted:
            return captures
        every, starts, source = packed_rows(wanted, extents.extend_lens)
        added = slots[self._to_device(inside)]
        own_slots = metadata.track_ssm_h_dst
        metadata.track_ssm_h_src = self._to_device(source)
        metadata.track_ssm_h_dst = torch.cat([own_slots.to(added.dtype), added])
        metadata.state_checkpoint_cu_starts = self._to_device(starts)
        metadata.num_state_checkpoints = starts[-1]
        metadata.state_checkpoint_every_n_tokens = every
        return captures


class MappedStates(CaptureBackend):
    """FlashInfer KDA: a destination for each multiple of the chunk, most of them none.

    SGLang lets the kernel write to a buffer, copies that into fp32 rows that follow the batch, and
    those into the pool. Each capture gets a row of its own behind the batch.
    """

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        if extents.own is None:
            return []
        slots, states, inside = self._lay_out(captures, extents)
        own = set(extents.own)
        if any(states[i] in own for i in inside):
            return [capture for i, capture in enumerate(captures) if i not in inside]
        wanted = [*extents.own, *(states[i] for i in inside)]
        if not inside:
            return captures
        starts, destinations = mapped_rows(wanted, extents.extend_lens, self.chunk)
        batch = len(extents.extend_lens)
        added = slots[self._to_device(inside)]
        extra = self._to_device(range(batch, batch + len(inside)))
        no_chunk = torch.full_like(extra, -1, dtype=torch.int32)
        appended = {
            "track_chunk_idx": no_chunk,
            "track_ssm_h_batch_src": extra,
            "track_ssm_h_src": torch.zeros_like(extra),  # only counted
            "track_ssm_h_dst": added,
        }
        if getattr(metadata, "track_chunk_idx", None) is None:
            metadata.track_chunk_idx = torch.full((batch,), -1, dtype=torch.int32).to(extra.device)
        self._append_vectors(appended)
        metadata.state_checkpoint_cu_starts = self._to_device(starts)
        metadata.num_state_checkpoints = len(wanted)
        metadata.state_checkpoint_every_n_tokens = self.chunk
        metadata.state_checkpoint_indices = self._to_device(destinations, torch.int32)
        return captures


class FlatGrid(CaptureBackend):
    """Mamba2: one chunk grid over the whole batch, and a second kernel for states off that grid.

    A state depends on where the batch put its sequence: bits are equal only where all runs had the
    sequence start on the grid, as it does alone.
    """

    exact = False

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        super().capture(plan, forward_batch)
        if plan.live() and forward_batch.mamba_track_mask is None:
            # SGLang copies states only in batches that have this mask, whatever it says
            rows = len(forward_batch.extend_seq_lens_cpu)
            device = self.backend.forward_metadata.mamba_cache_indices.device
            forward_batch.mamba_track_mask = torch.zeros(rows, dtype=torch.bool, device=device)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        slots, states, inside = self._lay_out(captures, extents)
        starts = list(accumulate(extents.extend_lens, initial=0))
        ends = [starts[row] + computed for row, computed in states]
        on_grid = [i for i in inside if ends[i] % self.chunk == 0]
        off_grid = [i for i in inside if ends[i] % self.chunk]
        appended = {
            "track_ssm_h_src": self._to_device([ends[i] // self.chunk for i in on_grid]),
            "track_ssm_h_dst": slots[self._to_device(on_grid)],
            "track_ssm_seq_idx": self._to_device([states[i][0] for i in off_grid]),
            "track_ssm_end_locs": self._to_device([ends[i] for i in off_grid]),
            "track_ssm_recompute_dst": slots[self._to_device(off_grid)],
        }
        self._append_vectors(appended)
        return captures
