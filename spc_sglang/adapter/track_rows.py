"""Writes planned captures by extending the index vectors of a gated-delta forward.

SGLang's backend copies, in every linear layer, conv windows `conv[mask_indices] =
mixed_qkv[track_conv_indices]` and states `ssm[h_dst] = h[h_src]`, `ssm[final_dst] =
ssm[final_src]`. None of these assumes one row a request, so one more row per capture makes all
layers write conv window and state into the captured slot within the same forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from spc_sglang.adapter.capture import CapturePlan


@dataclass(frozen=True, slots=True)
class TrackRows:
    """Host-side indices of P captures; `*_capture` index the captures, 0..P-1.

    conv_start: first flat token of each conv window, [P].
    h_source, h_capture: row of the per-chunk states `h`, and the capture it serves.
    final_row, final_capture: batch row whose final state serves a capture.
    """

    conv_start: list[int]
    h_source: list[int]
    h_capture: list[int]
    final_row: list[int]
    final_capture: list[int]


def build_rows(
    positions: Sequence[tuple[int, int]],
    prefix_lens: Sequence[int],
    extend_lens: Sequence[int],
    *,
    chunk: int,
    window: int,
) -> TrackRows:
    """Index rows for captures given as (batch row, absolute depth).

    `h` holds the state entering each chunk of each sequence, partial chunks included.
    """
    starts = list(accumulate(extend_lens, initial=0))
    first_chunk = list(accumulate((-(-length // chunk) for length in extend_lens), initial=0))
    rows = TrackRows([], [], [], [], [])
    for capture, (row, depth) in enumerate(positions):
        computed = depth - prefix_lens[row]
        assert window <= computed <= extend_lens[row], (depth, prefix_lens[row], extend_lens[row])
        rows.conv_start.append(starts[row] + computed - window)
        if computed == extend_lens[row]:
            rows.final_row.append(row)
            rows.final_capture.append(capture)
        else:
            assert computed % chunk == 0, (computed, chunk)
            rows.h_source.append(first_chunk[row] + computed // chunk)
            rows.h_capture.append(capture)
    return rows


def append_rows(backend: Any, plan: CapturePlan, forward_batch: Any) -> None:
    """Append the captures of `plan` to `backend.forward_metadata` and confirm them."""
    captures = plan.live()
    if not captures:
        return
    rows = build_rows(
        [(capture.row, capture.depth) for capture in captures],
        list(forward_batch.extend_prefix_lens_cpu),
        list(forward_batch.extend_seq_lens_cpu),
        chunk=backend.mamba_chunk_size,
        window=backend.conv_states_shape[-1],
    )
    extend_metadata(backend, rows, torch.cat([capture.slot for capture in captures]))
    for capture in captures:
        capture.written = True


def extend_metadata(backend: Any, rows: TrackRows, slots: torch.Tensor) -> None:
    """Append `rows`, with the pool slots `[P]` of their captures, to the forward's vectors."""
    metadata = backend.forward_metadata
    to_device = backend._track_indices_to_device
    slots = backend._translate_mamba_indices(slots)
    window = torch.arange(backend.conv_states_shape[-1], device=slots.device)
    appended = {
        "track_conv_indices": to_device(rows.conv_start).unsqueeze(-1) + window,
        "conv_states_mask_indices": slots,
        "track_ssm_h_src": to_device(rows.h_source),
        "track_ssm_h_dst": slots[to_device(rows.h_capture)],
        "track_ssm_final_src": metadata.mamba_cache_indices[to_device(rows.final_row)],
        "track_ssm_final_dst": slots[to_device(rows.final_capture)],
    }
    for name, new in appended.items():
        old = getattr(metadata, name, None) if metadata.has_mamba_track_mask else None
        setattr(metadata, name, new if old is None else torch.cat([old.to(new.dtype), new]))
    metadata.has_mamba_track_mask = True
