"""What every way to capture has in common: `CaptureBackend.capture(plan, forward_batch)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from spc_sglang.adapter.capture import Capture, CapturePlan
from spc_sglang.adapter.capture_extents import Extents
from spc_sglang.adapter.track_rows import TrackRows, extend_metadata


class CaptureBackend(ABC):
    """How one prefill kernel is made to write planned captures within its forward.

    exact: whether a run resumed from a capture gives the bits of the uncut one, as far as this
        kernel decides it.
    """

    exact = True

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        """Arrange that the coming forward writes the live captures of `plan`.

        Called after SGLang prepared its metadata. Marks the captures that will be written; the
        others stay unwritten and are never published.
        """
        captures = plan.live()
        if captures:
            extents = Extents.of(self.backend.forward_metadata, forward_batch, self.chunk)
            for capture in self._arrange(captures, extents):
                capture.written = True

    @property
    def chunk(self) -> int:
        return int(self.backend.mamba_chunk_size)

    @abstractmethod
    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        """Change the metadata; the captures that the forward is now sure to write."""

    def _slots(self, captures: Sequence[Capture]) -> Tensor:
        """Pool rows of the captures, [P] on the device, as the layers address them."""
        translated: Tensor = self.backend._translate_mamba_indices(_cat_slots(captures))
        return translated

    def _append(self, captures: Sequence[Capture], extents: Extents) -> None:
        """Rows for the conv windows of all captures, and for states at the end of a sequence."""
        starts = list(accumulate(extents.extend_lens, initial=0))
        window = self.backend.conv_states_shape[-1]
        rows = TrackRows([], [], [], [], [])
        for index, state in enumerate(map(extents.state_of, captures)):
            rows.conv_start.append(starts[state[0]] + state[1] - window)
            if extents.is_end(state):
                rows.final_row.append(state[0])
                rows.final_capture.append(index)
        extend_metadata(self.backend, rows, _cat_slots(captures))

    def _lay_out(
        self, captures: Sequence[Capture], extents: Extents
    ) -> tuple[Tensor, list[tuple[int, int]], list[int]]:
        """Do what `_append` does; pool rows [P], states, and which of them lie inside a forward."""
        slots = self._slots(captures)
        self._append(captures, extents)
        states = [extents.state_of(capture) for capture in captures]
        return slots, states, [i for i, state in enumerate(states) if not extents.is_end(state)]

    def _append_vectors(self, appended: Mapping[str, Tensor]) -> None:
        """Longer index vectors by name; those that SGLang has made keep their dtype."""
        metadata = self.backend.forward_metadata
        for name, new in appended.items():
            old = getattr(metadata, name, None)
            setattr(metadata, name, new if old is None else torch.cat([old, new.to(old.dtype)]))

    def _to_device(self, values: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
        tensor: Tensor = self.backend._track_indices_to_device(list(values), dtype)
        return tensor


def _cat_slots(captures: Sequence[Capture]) -> Tensor:
    """Slots [P] as the allocator numbers them."""
    return torch.cat([capture.slot for capture in captures if capture.slot is not None])
