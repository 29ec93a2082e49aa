"""Each way to capture, on SGLang's own metadata class and, for our state pass, its own kernels."""

from __future__ import annotations

import importlib
import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from sglang.kernels.ops.attention.fla import chunk as gdn_chunk
from sglang.kernels.ops.attention.fla import kda
from sglang.srt.layers.attention.mamba.mamba2_metadata import ForwardMetadata
from torch import Tensor
from torch.nn.functional import logsigmoid

from spc_sglang.adapter import state_pass
from spc_sglang.adapter.capture import Capture, CapturePlan
from spc_sglang.adapter.capture_extents import mapped_rows, packed_rows
from spc_sglang.adapter.capture_indices import FlatGrid, KdaRows, MappedStates, PackedStates
from spc_sglang.adapter.capture_state_pass import StatePass
from spc_sglang.kernels import interpreter

FLA = "sglang.kernels.ops.attention.fla."
interpreter.adapt(
    *(
        importlib.import_module(FLA + name)
        for name in ("op", "chunk", "chunk_delta_h", "chunk_fwd", "chunk_intra", "chunk_o")
    ),
    *(importlib.import_module(FLA + name) for name in ("cumsum", "kda", "l2norm", "wy_fast")),
)

WINDOW = 3


class FakeBackend:
    """What the capture classes use of SGLang's attention backends."""

    conv_states_shape = (48, WINDOW)

    def __init__(self, metadata: ForwardMetadata, chunk: int = 64) -> None:
        self.forward_metadata = metadata
        self.mamba_chunk_size = chunk

    def _translate_mamba_indices(self, slots: Tensor) -> Tensor:
        return slots + 100  # the rows of the pool are not the slots of the allocator

    def _track_indices_to_device(
        self, values: list[int], dtype: torch.dtype = torch.int64
    ) -> Tensor:
        return torch.tensor(values, dtype=dtype)


def make_forward(
    prefix_lens: list[int], extend_lens: list[int], own: dict[int, int], slots: dict[int, int]
) -> tuple[ForwardMetadata, SimpleNamespace]:
    """Metadata of a prefill where SGLang captures row -> absolute depth itself, to pool rows."""
    starts = torch.tensor([0, *extend_lens]).cumsum(0).to(torch.int32)
    inside = [row for row, depth in own.items() if (depth - prefix_lens[row]) % 64]
    destinations = torch.tensor([slots[row] for row in inside], dtype=torch.int64)
    metadata = ForwardMetadata(
        query_start_loc=starts,
        mamba_cache_indices=torch.arange(len(extend_lens), dtype=torch.int32),
        has_mamba_track_mask=bool(own),
        track_conv_indices=torch.zeros(len(own), WINDOW, dtype=torch.int64),
        conv_states_mask_indices=torch.tensor([slots[row] for row in own], dtype=torch.int64),
        track_ssm_h_src=torch.full((len(inside),), 999),
        track_ssm_h_dst=destinations,
        track_ssm_h_batch_src=torch.tensor(inside, dtype=torch.int64),
        track_ssm_final_src=torch.zeros(0, dtype=torch.int64),
        track_ssm_final_dst=torch.zeros(0, dtype=torch.int64),
        track_chunk_idx=torch.full((len(extend_lens),), -1, dtype=torch.int32),
    )
    forward_batch = SimpleNamespace(
        extend_prefix_lens_cpu=prefix_lens,
        extend_seq_lens_cpu=extend_lens,
        mamba_prefill_track_mask_cpu=[row in own for row in range(len(extend_lens))],
        mamba_track_seqlens_cpu=[own.get(row, 0) for row in range(len(extend_lens))],
        mamba_track_mask=torch.zeros(len(extend_lens), dtype=torch.bool) if own else None,
    )
    return metadata, forward_batch


def make_plan(
    prefix_lens: list[int], extend_lens: list[int], captures: list[tuple[int, int, int]]
) -> CapturePlan:
    """Captures given as (batch row, absolute depth, slot)."""
    made = [Capture(row, depth, torch.tensor([slot])) for row, depth, slot in captures]
    return CapturePlan(prefix_lens, extend_lens, made)


@pytest.fixture
def our_state_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our function around SGLang's, as the hook puts it."""
    around = partial(state_pass.around_fwd_h, gdn_chunk.chunk_gated_delta_rule_fwd_h)
    monkeypatch.setattr(gdn_chunk, "chunk_gated_delta_rule_fwd_h", around)


def prefill(inputs: dict[str, Tensor], pool: Tensor, slots: list[int], starts: Tensor) -> Tensor:
    """SGLang's whole GDN prefill; its last step copies states between rows as SGLang does."""
    output, _, _ = gdn_chunk.chunk_gated_delta_rule(
        **inputs,
        initial_state=pool,
        initial_state_indices=torch.tensor(slots, dtype=torch.int32),
        cu_seqlens=starts,
        use_qk_l2norm_in_kernel=True,
    )
    return output


def make_inputs(tokens: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(1, tokens, *size, generator=generator)

    inputs = {"q": normal(1, 64), "k": normal(1, 64), "v": normal(2, 32)}
    inputs = {name: tensor.bfloat16() for name, tensor in inputs.items()}
    return inputs | {"g": logsigmoid(normal(2) + 4), "beta": torch.sigmoid(normal(2)).bfloat16()}


def test_our_state_pass_captures_exactly_inside_sglangs_prefill(our_state_pass: None) -> None:
    """Ours and SGLang's own captures; resumed outputs equal the uncut ones, two chunks on too."""
    prefix_lens, extend_lens = [0, 64], [100, 330]
    metadata, batch = make_forward(prefix_lens, extend_lens, {1: 64 + 330}, {1: 7})
    plan = make_plan(prefix_lens, extend_lens, [(1, 192, -95), (0, 64, -96), (0, 100, -94)])
    StatePass(FakeBackend(metadata)).capture(plan, batch)
    assert not any(capture.written for capture in plan.captures)
    assert metadata.track_ssm_h_src.tolist() == [999], "nothing has been written yet"
    assert metadata.conv_states_mask_indices.tolist() == [7, 5, 4, 6]

    inputs = make_inputs(430)
    start = 0.3 * torch.randn(8, 2, 32, 64, generator=torch.Generator().manual_seed(1))
    pool, stock = start.clone(), start.clone()
    output = prefill(inputs, pool, [0, 1], metadata.query_start_loc)
    assert metadata.track_ssm_h_src.numel() == metadata.track_ssm_h_dst.numel() == 0
    assert all(capture.written for capture in plan.captures)
    state_pass.FORWARD_PLAN.lay_down(None)
    assert torch.equal(prefill(inputs, stock, [0, 1], metadata.query_start_loc), output)
    assert torch.equal(stock[:2], pool[:2]) and torch.equal(stock[2:], start[2:])
    assert torch.equal(pool[[2, 3]], start[[2, 3]])
    assert torch.equal(pool[6], pool[0])  # the end of row 0 is its final state

    for row, computed in ((5, 128), (7, 320)):  # ours at 192, SGLang's own at 384
        rest = {name: tensor[:, 100 + computed :] for name, tensor in inputs.items()}
        bounds = torch.tensor([0, 330 - computed], dtype=torch.int32)
        resumed = prefill(rest, pool.clone(), [row], bounds)
        assert torch.equal(resumed, output[:, 100 + computed :]), row


def test_our_state_pass_captures_exactly_inside_sglangs_kda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SGLang asks for its snapshot in a buffer of its own, and need not read it any more."""
    around = partial(state_pass.around_fwd_h, kda.chunk_gated_delta_rule_fwd_h)
    monkeypatch.setattr(kda, "chunk_gated_delta_rule_fwd_h", around)
    metadata, batch = make_forward([0], [200], {0: 200}, {0: 3})
    plan = make_plan([0], [200], [(0, 64, -98)])
    StatePass(FakeBackend(metadata)).capture(plan, batch)
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1, 200, 1, 32, generator=generator) for _ in range(4)]
    inputs = dict(zip("qkv", (x.bfloat16() for x in tensors), strict=False))
    inputs["g"] = logsigmoid(tensors[3] + 4)
    inputs["beta"] = torch.sigmoid(tensors[0][..., 0]).bfloat16()

    def run(part: slice, pool: Tensor, slot: int, starts: Tensor) -> Tensor:
        output = kda.chunk_kda(
            **{name: tensor[:, part].contiguous() for name, tensor in inputs.items()},
            initial_state=pool,
            initial_state_indices=torch.tensor([slot], dtype=torch.int32),
            use_qk_l2norm_in_kernel=True,
            cu_seqlens=starts,
            track_state=torch.empty(1, 1, 32, 32),
            track_chunk_idx=torch.tensor([3], dtype=torch.int32),
        )
        assert isinstance(output, Tensor)
        return output

    pool = torch.zeros(4, 1, 32, 32)
    output = run(slice(0, 200), pool, 0, metadata.query_start_loc)
    assert plan.captures[0].written and metadata.track_ssm_h_dst.numel() == 0
    resumed = run(slice(64, 200), pool.clone(), 2, torch.tensor([0, 136], dtype=torch.int32))
    assert torch.equal(resumed, output[:, 64:])
    resumed = run(slice(192, 200), pool.clone(), 3, torch.tensor([0, 8], dtype=torch.int32))
    assert torch.equal(resumed, output[:, 192:])


def test_a_state_wanted_twice_is_copied_at_the_end() -> None:
    metadata, batch = make_forward([0], [330], {0: 330}, {0: 7})
    plan = make_plan([0], [330], [(0, 320, -95)])
    StatePass(FakeBackend(metadata)).capture(plan, batch)
    planned = state_pass.FORWARD_PLAN.find(metadata.query_start_loc)
    assert planned is not None and planned.plan.slot.tolist() == [5, -1]
    for _ in range(2):  # by two layers
        planned.confirm()
    assert metadata.track_ssm_final_src.tolist() == [5]
    assert metadata.track_ssm_final_dst.tolist() == [7]
    assert state_pass.FORWARD_PLAN.find(metadata.query_start_loc.clone()) is None


def test_a_plan_never_outlives_its_forward() -> None:
    """A forward without live captures, or one that the host does not know, leaves no plan."""
    metadata, batch = make_forward([0], [330], {0: 330}, {0: 7})
    backend = StatePass(FakeBackend(metadata))
    backend.capture(make_plan([0], [330], [(0, 64, -95)]), batch)
    assert state_pass.FORWARD_PLAN.find(metadata.query_start_loc) is not None
    backend.capture(make_plan([0], [330], []), batch)
    assert state_pass.FORWARD_PLAN.find(metadata.query_start_loc) is None
    metadata, batch = make_forward([0], [330], {0: 330}, {0: 7})
    batch.mamba_track_seqlens_cpu = None
    plan = make_plan([0], [330], [(0, 64, -95)])
    StatePass(FakeBackend(metadata)).capture(plan, batch)
    assert not plan.captures[0].written
    assert state_pass.FORWARD_PLAN.find(metadata.query_start_loc) is None


def test_packed_rows_against_enumeration() -> None:
    """n divides all depths and no larger step does; rows as the kernel numbers them."""
    generator = random.Random(5)
    for _ in range(300):
        lengths = [generator.randrange(64, 900) for _ in range(generator.randrange(1, 4))]
        options = [(r, c) for r, length in enumerate(lengths) for c in range(64, length, 64)]
        if not options:
            continue
        states = generator.sample(options, min(len(options), generator.randrange(1, 5)))
        every, starts, source = packed_rows(states, lengths)
        fitting = [n for n in range(64, 900, 64) if all(c % n == 0 for _, c in states)]
        assert every == max(fitting), (states, every)
        kept = [(r, c) for r, length in enumerate(lengths) for c in range(every, length + 1, every)]
        assert [kept[i] for i in source] == states and starts[-1] == len(kept)


def test_flashinfer_gdn_takes_several_of_the_states_it_makes() -> None:
    metadata, batch = make_forward([0, 64], [512, 700], {1: 64 + 700}, {1: 7})
    plan = make_plan([0, 64], [512, 700], [(0, 128, 1), (0, 512, 2), (1, 448, 3)])
    PackedStates(FakeBackend(metadata)).capture(plan, batch)
    assert metadata.state_checkpoint_every_n_tokens == 128
    assert metadata.state_checkpoint_cu_starts.tolist() == [0, 4, 9]
    assert metadata.num_state_checkpoints == 9
    # SGLang's own at 640 of row 1, then ours at 128 of row 0 and 384 of row 1
    assert metadata.track_ssm_h_src.tolist() == [8, 0, 6]
    assert metadata.track_ssm_h_dst.tolist() == [7, 101, 103]
    assert metadata.track_ssm_final_dst.tolist() == [102]
    windows = metadata.track_conv_indices[1:, 0].tolist()
    assert windows == [128 - WINDOW, 512 - WINDOW, 512 + 384 - WINDOW]
    assert metadata.conv_states_mask_indices.tolist() == [7, 101, 102, 103]


def test_flashinfer_kda_maps_each_capture_to_a_row_of_its_own() -> None:
    metadata, batch = make_forward([0, 0], [200, 330], {1: 330}, {1: 7})
    plan = make_plan([0, 0], [200, 330], [(0, 128, 1), (1, 64, 2)])
    MappedStates(FakeBackend(metadata)).capture(plan, batch)
    indices = metadata.state_checkpoint_indices.tolist()
    assert metadata.state_checkpoint_cu_starts.tolist() == [0, 3, 8]
    assert indices == [-1, 1, -1, 2, -1, -1, -1, 0]
    # SGLang's two copies, buffer -> rows that follow the batch -> pool, replayed on markers
    buffer = torch.zeros(metadata.num_state_checkpoints)
    for boundary, index in enumerate(indices):
        if index >= 0:
            buffer[index] = boundary
    rows = torch.full((metadata.track_chunk_idx.numel(),), -1.0)
    rows[metadata.track_ssm_h_batch_src] = buffer
    pool = torch.full((110,), -1.0)
    pool[metadata.track_ssm_h_dst] = rows[metadata.track_ssm_h_batch_src]
    assert {i: pool[i].item() for i in (7, 101, 102)} == {7: 7.0, 101: 1.0, 102: 3.0}
    assert metadata.track_ssm_h_src.numel() == 3


def test_mapped_rows_refuse_two_states_at_one_boundary() -> None:
    assert mapped_rows([(0, 64)], [200], 64) == ([0, 3], [0, -1, -1])
    with pytest.raises(AssertionError):
        mapped_rows([(0, 64), (0, 64)], [200], 64)


def test_mamba2_splits_captures_by_the_grid_of_the_batch() -> None:
    """Row 1 starts at token 100, off the grid of 64, except where its depth makes up for it."""
    metadata, batch = make_forward([0, 0], [100, 300], {}, {})
    plan = make_plan([0, 0], [100, 300], [(0, 64, 1), (1, 128, 2), (1, 300, 3)])
    backend = FlatGrid(FakeBackend(metadata))
    backend.capture(plan, batch)
    assert metadata.track_ssm_h_src.tolist() == [1]
    assert metadata.track_ssm_h_dst.tolist() == [101]
    assert metadata.track_ssm_seq_idx.tolist() == [1]
    assert metadata.track_ssm_end_locs.tolist() == [228]
    assert metadata.track_ssm_recompute_dst.tolist() == [102]
    assert metadata.track_ssm_final_dst.tolist() == [103]
    assert not backend.exact
    # `no_buffer` tracks nothing itself, and then SGLang would copy no state of ours either
    assert batch.mamba_track_mask.tolist() == [False, False]


def test_mamba2_leaves_a_batch_without_captures_alone() -> None:
    metadata, batch = make_forward([0], [100], {}, {})
    FlatGrid(FakeBackend(metadata)).capture(make_plan([0], [100], []), batch)
    assert batch.mamba_track_mask is None and not metadata.has_mamba_track_mask


def test_kda_reads_all_captures_from_the_states_between_chunks() -> None:
    """SGLang's snapshot of one row a sequence is off, and its own row is among the copies."""
    metadata, batch = make_forward([0, 64], [512, 700], {1: 64 + 700}, {1: 7})
    metadata.track_ssm_h_src[:] = 8 + 10
    plan = make_plan([0, 64], [512, 700], [(0, 128, 1), (1, 448, 3)])
    KdaRows(FakeBackend(metadata)).capture(plan, batch)
    assert all(capture.written for capture in plan.captures)
    assert metadata.track_chunk_idx is None
    assert metadata.track_ssm_h_src.tolist() == [18, 2, 8 + 6]
    assert metadata.track_ssm_h_dst.tolist() == [7, 101, 103]
    untouched, batch = make_forward([0], [100], {0: 100}, {0: 7})
    KdaRows(FakeBackend(untouched)).capture(make_plan([0], [100], []), batch)
    assert untouched.track_chunk_idx is not None
