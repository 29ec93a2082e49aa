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
    """Our state pass writes into the pool; so are SGLang's own captures, which become exact too.

    Nothing counts as written, and SGLang goes on copying from its rounded states, until a layer
    has run our state pass.
    """

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        FORWARD_PLAN.lay_down(None)
        super().capture(plan, forward_batch)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        cu_seqlens = metadata.query_start_loc
        if extents.own is None or cu_seqlens.numel() != len(extents.extend_lens) + 1:
            return []
        rows = self._slots(captures)
        if extents.own:
            rows = torch.cat([rows, metadata.track_ssm_h_dst.to(rows.dtype)])
        self._append(captures, extents)
        wanted: list[dict[int, int]] = [{} for _ in extents.extend_lens]
        twice: list[tuple[int, int]] = []
        states = [extents.state_of(capture) for capture in captures]
        for index, (row, computed) in enumerate([*states, *extents.own]):
            first = wanted[row].setdefault(extents.prefix_lens[row] + computed, index)
            if first != index:
                twice.append((first, index))
        plan = plan_snapshots(extents.extend_lens, extents.prefix_lens, wanted, rows.device)
        copies = rows[self._to_device([i for pair in twice for i in pair])].view(-1, 2)
        confirm = _Confirmation(metadata, captures, copies)
        FORWARD_PLAN.lay_down(PlannedForward(plan.with_rows(rows), cu_seqlens, confirm))
        return []


class _Confirmation:
    """Run by every layer behind our state pass, just before SGLang's own copies; acts once.

    copies [C, 2]: pool rows, from and to, of states that two captures share.
    """

    def __init__(self, metadata: Any, captures: list[Capture], copies: Tensor) -> None:
        self._metadata = metadata
        self._captures = captures
        self._copies = copies
        self._done = False

    def __call__(self) -> None:
        if self._done:
            return
        self._done = True
        metadata = self._metadata
        metadata.track_ssm_h_src = metadata.track_ssm_h_src[:0]
        metadata.track_ssm_h_dst = metadata.track_ssm_h_dst[:0]
        for name, rows in zip(("src", "dst"), self._copies.unbind(1), strict=True):
            old = getattr(metadata, f"track_ssm_final_{name}")
            setattr(metadata, f"track_ssm_final_{name}", torch.cat([old, rows.to(old.dtype)]))
        for capture in self._captures:
            capture.written = True
