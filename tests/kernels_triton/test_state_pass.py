"""The Triton state pass, interpreted, against its naive twin and against itself."""

from __future__ import annotations

import pytest
import torch

from spc_sglang.kernels.gated_delta.plan import plan_snapshots
from tests.kernels_triton.batches import RECURRENCES, error, make_batch, run, run_twin

LENGTHS = [1, 63, 64, 65, 500]
DTYPES = {"fp32": (torch.float32, 3e-6), "bf16": (torch.bfloat16, 3e-3)}
DIMS = [(32, 32), (64, 64), (128, 128), (96, 48)]


def make_pool(rows: int, heads: int, value_dim: int, key_dim: int) -> torch.Tensor:
    """A pool whose rows lie further apart than their size, as in a pool of several layers."""
    generator = torch.Generator().manual_seed(1)
    wide = 0.3 * torch.randn(rows, heads + 1, value_dim, key_dim, generator=generator)
    return wide[:, :heads]


@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_equals_the_twin(recurrence: str, dtype: str, dims: tuple[int, int]) -> None:
    """States, values, planned rows and written-back rows of five sequences; others untouched."""
    torch_dtype, tolerance = DTYPES[dtype]
    key_dim, value_dim = dims
    batch = make_batch(recurrence, LENGTHS, dtype=torch_dtype, key_dim=key_dim, value_dim=value_dim)
    prefixes = [0, 64, 7, 128, 0]
    wanted = [{1: 6}, {}, {7: 7, 71: 8}, {128: 9, 192: -1}, {0: 10, 64: 11, 448: 12, 500: 13}]
    slots = [0, 1, -1, 3, 4]
    pool = make_pool(15, 2, value_dim, key_dim)
    before = pool.clone()
    initial = torch.stack([before[s] if s >= 0 else 0 * before[0] for s in slots])
    twin = run_twin(batch, LENGTHS, initial)
    plan = plan_snapshots(LENGTHS, prefixes, wanted)
    result = run(batch, pool, slots, plan, states_dtype=torch.float32)

    entering = torch.cat([t.states[:-1] for t in twin])
    assert result.states is not None and result.new_values is not None
    assert error(result.states[0], entering) < tolerance
    assert error(result.new_values[0], torch.cat([t.new_values for t in twin])) < 2 * tolerance
    last = {6: 0, 8: 2, 13: 4, 0: 0, 1: 1, 3: 3, 4: 4}
    for row, sequence in last.items():
        assert error(pool[row], twin[sequence].states[-1]) < tolerance, (row, sequence)
    # a planned row is the very state that the output kernel is given, before its rounding
    chunk = dict(zip([0, 1, 2, 3, 4], plan.chunk_base.tolist(), strict=False))
    for row, index in {7: chunk[2], 9: chunk[3], 10: chunk[4], 11: chunk[4] + 1}.items():
        assert torch.equal(pool[row], result.states[0, index]), row
    assert torch.equal(pool[12], result.states[0, chunk[4] + 7])
    assert torch.equal(pool[13], pool[4]) and torch.equal(pool[10], before[4])
    untouched = [2, 5, 14]
    assert torch.equal(pool[untouched], before[untouched])


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_states_do_not_depend_on_what_else_is_stored(recurrence: str) -> None:
    """Without states and values, and with rounded states, the planned rows stay bit for bit."""
    lengths = [200, 64]
    batch = make_batch(recurrence, lengths, dtype=torch.bfloat16, key_dim=96)
    plan = plan_snapshots(lengths, None, [{64: 2, 192: 3}, {64: 4}])
    pools = [make_pool(6, 2, 32, 96) for _ in range(3)]
    full = run(batch, pools[0], [0, 1], plan, states_dtype=torch.float32)
    rounded = run(batch, pools[1], [0, 1], plan)
    bare = run(batch, pools[2], [0, 1], plan, store_states=False, store_values=False)
    assert bare.states is None and bare.new_values is None
    assert torch.equal(pools[0], pools[1]) and torch.equal(pools[0], pools[2])
    assert full.states is not None and rounded.states is not None
    assert torch.equal(full.states.bfloat16(), rounded.states)


@pytest.mark.parametrize("recurrence", ["gdn", "kda"])
def test_keys_outermost_gives_the_transposed_states(recurrence: str) -> None:
    """The [K, V] layout of flash-linear-attention holds the same bits."""
    lengths = [130]
    batch = make_batch(recurrence, lengths, dtype=torch.bfloat16, key_dim=64, value_dim=32)
    plan = plan_snapshots(lengths, None, [{64: 1, 128: 2}])
    pool = make_pool(3, 2, 32, 64).contiguous()
    flipped = pool.transpose(-1, -2).contiguous()
    first = run(batch, pool, [0], plan)
    second = run(batch, flipped, [0], plan, key_major=True)
    assert torch.equal(pool, flipped.transpose(-1, -2))
    assert first.states is not None and second.states is not None
    assert torch.equal(first.states, second.states.transpose(-1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recurrence", ["gdn", "kda", "ssd"])
def test_resume_is_bitwise_equal(recurrence: str, dtype: str) -> None:
    """Compared over all tokens behind a cut, at least two chunks: one chunk would show nothing.

    The first chunk behind a cut rounds the state to bf16 anyway, so it is blind to rounding.
    """
    total = 64 * 5 + 20
    batch = make_batch(recurrence, [total], dtype=DTYPES[dtype][0], key_dim=128, value_dim=32)
    pool = make_pool(4, 2, 32, 128)
    entry = pool.clone()
    plan = plan_snapshots([total], None, [{64: 1, 192: 2}])
    uncut = run(batch, pool, [0], plan)
    assert uncut.states is not None and uncut.new_values is not None
    assert not torch.equal(pool[1], entry[1])
    for depth, row in ((64, 1), (192, 2)):
        resumed_pool = pool.clone()
        rest = plan_snapshots([total - depth], [depth])
        resumed = run(batch.part(depth, total), resumed_pool, [row], rest)
        assert torch.equal(resumed.states, uncut.states[:, depth // 64 :])
        assert torch.equal(resumed.new_values, uncut.new_values[:, depth:])
        assert torch.equal(resumed_pool[row], pool[0])


def test_a_lossy_checkpoint_is_noticed() -> None:
    """Negative control: resuming from a state rounded to bf16 differs two chunks later."""
    batch = make_batch("gdn", [320], dtype=torch.bfloat16, key_dim=64)
    pool = make_pool(2, 2, 32, 64)
    run(batch, pool, [0], plan_snapshots([320], None, [{64: 1}]))
    exact, lossy = pool.clone(), pool.clone()
    lossy[1] = lossy[1].bfloat16().float()
    rest = batch.part(64, 320)
    first = run(rest, exact, [1], plan_snapshots([256], [64]))
    second = run(rest, lossy, [1], plan_snapshots([256], [64]))
    assert torch.equal(first.new_values[:, :64], second.new_values[:, :64])  # blind
    assert not torch.equal(first.new_values[:, 128:], second.new_values[:, 128:])


def test_a_bf16_pool_holds_what_a_run_ending_there_leaves() -> None:
    """Row for depth d == the row written back by a run of d tokens, and it is the rounded state."""
    batch = make_batch("gdn", [256], dtype=torch.bfloat16, key_dim=64)
    pool = make_pool(3, 2, 32, 64).contiguous().bfloat16()
    start = pool.clone()
    exact = torch.zeros(1, 2, 32, 64)
    wanted = plan_snapshots([256], None, [{128: 1}])
    run(batch, pool, [0], wanted)
    ending = start.clone()
    run(batch.part(0, 128), ending, [0], plan_snapshots([128]))
    assert torch.equal(pool[1], ending[0])
    only = plan_snapshots([256], None, [{128: 0}])
    run(batch, start.clone(), [0], only, snapshot_pool=exact)
    assert torch.equal(exact[0].bfloat16(), pool[1]) and not torch.equal(exact[0], pool[1].float())


def test_unsupported_shapes_are_refused() -> None:
    batch = make_batch("gdn", [64], dtype=torch.float32, key_dim=160)
    plan = plan_snapshots([64])
    with pytest.raises(ValueError, match="key dimension 160 is above 128"):
        run(batch, torch.zeros(1, 2, 32, 160), [0], plan)
    batch = make_batch("gdn", [64], dtype=torch.float32)
    with pytest.raises(ValueError, match=r"of shape \(2, 32, 32\)"):
        run(batch, torch.zeros(1, 2, 32, 64), [0], plan)
