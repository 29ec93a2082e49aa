"""One way to capture per prefill kernel of SGLang 0.5.23, behind `CaptureBackend.capture`.

| prefill | states it gives | how several are captured |
|---|---|---|
| GDN, CPU provider | all, fp32 | rows of its index vectors (`track_rows`) |
| GDN, KDA on Triton | all, rounded to the activations' dtype | our state pass (`state_pass`) |
| GDN on FlashInfer | every n tokens, dtype of the pool or better | `PackedStates`: choice of n |
| KDA on FlashInfer | any multiples of the chunk, dtype of the pool | `MappedStates`: destinations |
| Mamba2 | any, fp32 | `FlatGrid`: recomputed off the grid of the batch; not bit for bit |
| GDN on CuTe DSL, Lightning, others | none, or one a sequence that SGLang needs itself | not at all |

The conv windows are rows of `track_conv_indices` with all of them. Nothing here has run on a GPU:
the tests use the interpreter, or metadata objects of SGLang without a model.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from typing import Any

import torch
from torch import Tensor

from spc_sglang.adapter import state_pass
from spc_sglang.adapter.capture import Capture, CapturePlan
from spc_sglang.adapter.track_rows import TrackRows, _extend_metadata, append_rows
from spc_sglang.kernels.gated_delta.plan import CHUNK_TOKENS, plan_snapshots

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Extents:
    """Host view of one prefill batch. A state is (batch row, tokens computed before it).

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
        return cls(
            prefix_lens, extend_lens, [(row, computed[row] // chunk * chunk) for row in rows]
        )

    def state_of(self, capture: Capture) -> tuple[int, int]:
        return capture.row, capture.depth - self.prefix_lens[capture.row]

    def is_end(self, state: tuple[int, int]) -> bool:
        return state[1] == self.extend_lens[state[0]]


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
        """Change the metadata; the captures that the forward will write."""

    def _slots(self, captures: Sequence[Capture]) -> Tensor:
        """Pool rows of the captures, [P] on the device, as the layers address them."""
        slots = [capture.slot for capture in captures if capture.slot is not None]
        translated: Tensor = self.backend._translate_mamba_indices(torch.cat(slots))
        return translated

    def _append(self, slots: Tensor, captures: Sequence[Capture], extents: Extents) -> None:
        """Rows for the conv windows of all captures, and for states at the end of a sequence."""
        starts = list(accumulate(extents.extend_lens, initial=0))
        window = self.backend.conv_states_shape[-1]
        rows = TrackRows([], [], [], [], [])
        for index, state in enumerate(map(extents.state_of, captures)):
            rows.conv_start.append(starts[state[0]] + state[1] - window)
            if extents.is_end(state):
                rows.final_row.append(state[0])
                rows.final_capture.append(index)
        _extend_metadata(self.backend, rows, slots)

    def _to_device(self, values: Sequence[int], dtype: torch.dtype = torch.int64) -> Tensor:
        tensor: Tensor = self.backend._track_indices_to_device(list(values), dtype)
        return tensor


class IndexRows(CaptureBackend):
    """The kernel hands out all states as exact as the pool holds them: `track_rows`."""

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        append_rows(self.backend, plan, forward_batch)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        raise NotImplementedError


class StatePass(CaptureBackend):
    """Our state pass writes into the pool; so are SGLang's own captures, which become exact too."""

    def capture(self, plan: CapturePlan, forward_batch: Any) -> None:
        state_pass.FORWARD_PLAN.lay_down(None)
        super().capture(plan, forward_batch)

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        cu_seqlens = metadata.query_start_loc
        if extents.own is None or cu_seqlens.numel() != len(extents.extend_lens) + 1:
            return []
        own = extents.own
        slots = self._slots(captures)
        own_slots = metadata.track_ssm_h_dst if own else slots[:0]
        self._append(slots, captures, extents)
        wanted: list[dict[int, int]] = [{} for _ in extents.extend_lens]
        twice: list[tuple[int, int]] = []
        states = [extents.state_of(capture) for capture in captures]
        for index, (row, computed) in enumerate([*states, *own]):
            first = wanted[row].setdefault(extents.prefix_lens[row] + computed, index)
            if first != index:
                twice.append((first, index))
        rows = torch.cat([slots, own_slots.to(slots.dtype)])
        plan = plan_snapshots(extents.extend_lens, extents.prefix_lens, wanted, rows.device)
        planned = state_pass.PlannedForward(plan.with_rows(rows), cu_seqlens)
        state_pass.FORWARD_PLAN.lay_down(planned)
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


class PackedStates(CaptureBackend):
    """FlashInfer GDN: states after every n tokens, n one multiple of 64 for the whole batch."""

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        if extents.own is None:
            return []
        slots = self._slots(captures)
        self._append(slots, captures, extents)
        states = [extents.state_of(capture) for capture in captures]
        inside = [i for i, state in enumerate(states) if not extents.is_end(state)]
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
        slots = self._slots(captures)
        self._append(slots, captures, extents)
        states = [extents.state_of(capture) for capture in captures]
        inside = [i for i, state in enumerate(states) if not extents.is_end(state)]
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
        for name, new in appended.items():
            old = getattr(metadata, name, None)
            joined = new if old is None else torch.cat([old, new.to(old.dtype)])
            setattr(metadata, name, joined)
        metadata.state_checkpoint_cu_starts = self._to_device(starts)
        metadata.num_state_checkpoints = len(wanted)
        metadata.state_checkpoint_every_n_tokens = self.chunk
        metadata.state_checkpoint_indices = self._to_device(destinations, torch.int32)
        return captures


class FlatGrid(CaptureBackend):
    """Mamba2: one chunk grid over the whole batch, and a second kernel for states off that grid.

    A state depends on where the batch put its sequence, so a resumed run need not have equal bits.
    """

    exact = False

    def _arrange(self, captures: list[Capture], extents: Extents) -> list[Capture]:
        metadata = self.backend.forward_metadata
        slots = self._slots(captures)
        self._append(slots, captures, extents)
        states = [extents.state_of(capture) for capture in captures]
        starts = list(accumulate(extents.extend_lens, initial=0))
        ends = [starts[row] + computed for row, computed in states]
        inside = [i for i, state in enumerate(states) if not extents.is_end(state)]
        on_grid = [i for i in inside if ends[i] % self.chunk == 0]
        off_grid = [i for i in inside if ends[i] % self.chunk]
        appended = {
            "track_ssm_h_src": self._to_device([ends[i] // self.chunk for i in on_grid]),
            "track_ssm_h_dst": slots[self._to_device(on_grid)],
            "track_ssm_seq_idx": self._to_device([states[i][0] for i in off_grid]),
            "track_ssm_end_locs": self._to_device([ends[i] for i in off_grid]),
            "track_ssm_recompute_dst": slots[self._to_device(off_grid)],
        }
        for name, new in appended.items():
            old = getattr(metadata, name, None)
            setattr(metadata, name, new if old is None else torch.cat([old, new.to(old.dtype)]))
        return captures


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


def choose(model_runner: Any) -> CaptureBackend | None:
    """The way to capture with this server's kernels, None if there is none; one line in the log."""
    backend = getattr(model_runner.attn_backend, "linear_attn_backend", None)
    kind, kernel = type(backend).__name__, _prefill_kernel(backend)
    pool = model_runner.req_to_token_pool.mamba_pool.mamba_cache.temporal
    missing = state_pass.can_run()
    if not pool[0].is_contiguous() or (pool.dim() > 1 and not pool[0, 0].is_contiguous()):
        return _none(f"a state of the pool is not contiguous, its strides are {pool.stride()}")
    if kind == "GDNAttnBackend" and torch.device(model_runner.device).type == "cpu":
        return _chosen(IndexRows(backend), "CPU kernels", pool)
    if kind in ("GDNAttnBackend", "KDAAttnBackend") and kernel.startswith("Triton"):
        if missing is None:
            return _chosen(StatePass(backend), kernel, pool)
        return _none(f"our state pass cannot run: {missing}")
    if kernel == "FlashInferGDNKernel":
        return _chosen(PackedStates(backend), kernel, pool)
    if kernel == "FlashInferKDAPrefillKernel":
        return _chosen(MappedStates(backend), kernel, pool)
    if kind == "Mamba2AttnBackend":
        return _chosen(FlatGrid(backend), "Mamba2", pool)
    return _none(f"{kernel or kind} gives no states inside a forward")


def _prefill_kernel(backend: Any) -> str:
    dispatcher = getattr(backend, "kernel_dispatcher", None)
    return "" if dispatcher is None else type(dispatcher.extend_kernel).__name__


def _chosen(chosen: CaptureBackend, kernel: str, pool: Tensor) -> CaptureBackend:
    held = f"{pool.dtype} pool" if pool.dtype == torch.float32 else f"{pool.dtype} pool, rounded"
    bits = "equal bits" if chosen.exact else "equal up to rounding"
    logger.info(
        "spc-sglang captures by %s from %s: %s, %s.", type(chosen).__name__, kernel, held, bits
    )
    return chosen


def _none(reason: str) -> None:
    logger.warning("spc-sglang captures no checkpoints of its own: %s.", reason)
