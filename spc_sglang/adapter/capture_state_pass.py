"""Captures by our own state pass, for the Triton prefills."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spc_sglang.adapter.capture import Capture, CapturePlan
from spc_sglang.adapter.capture_backend import CaptureBackend
from spc_sglang.adapter.capture_extents import Extents
from spc_sglang.adapter.state_pass import FORWARD_PLAN, PlannedForward
from spc_sglang.kernels.gated_delta.plan import plan_snapshots


class StatePass(CaptureBackend):
    """Our state pass writes into the pool; so are SGLang's own captures, which become exact too."""

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        FORWARD_PLAN.lay_down(None)
        super().capture(plan, forward_batch)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        cu_seqlens = metadata.query_start_loc
        if extents.own is None or cu_seqlens.numel() != len(extents.extend_lens) + 1:
            return []
        own = extents.own
        slots = self._slots(captures)
        own_slots = metadata.track_ssm_h_dst if own else slots[:0]
        self._append(captures, extents)
        wanted: list[dict[int, int]] = [{} for _ in extents.extend_lens]
        twice: list[tuple[int, int]] = []
        states = [extents.state_of(capture) for capture in captures]
        for index, (row, computed) in enumerate([*states, *own]):
            first = wanted[row].setdefault(extents.prefix_lens[row] + computed, index)
            if first != index:
                twice.append((first, index))
        rows = torch.cat([slots, own_slots.to(slots.dtype)])
        plan = plan_snapshots(extents.extend_lens, extents.prefix_lens, wanted, rows.device)
        planned = PlannedForward(plan.with_rows(rows), cu_seqlens)
        FORWARD_PLAN.lay_down(planned)
        self._drop_own_rows(rows, twice)
        return captures

    def _drop_own_rows(self, rows: Tensor, twice: list[tuple[int, int]]) -> None:
        """SGLang reads nothing from `h` any more; what two captures share it copies at the end."""
        metadata = self.backend.forward_metadata
        metadata.track_ssm_h_src = metadata.track_ssm_h_src[:0]
        metadata.track_ssm_h_dst = metadata.track_ssm_h_dst[:0]
        if twice:
            source, target = (rows[self._to_device(side)] for side in zip(*twice, strict=True))
            for name, new in (("src", source), ("dst", target)):
                old = getattr(metadata, f"track_ssm_final_{name}")
                setattr(metadata, f"track_ssm_final_{name}", torch.cat([old, new.to(old.dtype)]))
