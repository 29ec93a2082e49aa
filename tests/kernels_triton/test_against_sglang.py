"""The state pass against SGLang's own state kernel, both interpreted: every bit must agree.

Whether compiled code agrees bit for bit too is for `benchmarks/kernels.py` on a GPU.
"""

from __future__ import annotations

import pytest
import torch
from sglang.kernels.ops.attention.fla import chunk_delta_h, op

from spc_sglang.kernels.gated_delta.plan import plan_snapshots
from spc_sglang.kernels.interpreter import adapt
from tests.kernels_triton.batches import make_batch, run

adapt(chunk_delta_h, op)

LENGTHS = [65, 1, 500]


@pytest.mark.parametrize("key_dim", [64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("recurrence", ["gdn", "kda"])
def test_states_values_and_snapshots(recurrence: str, dtype: torch.dtype, key_dim: int) -> None:
    """`h`, `v_new`, the states written back, and its one fp32 snapshot a sequence."""
    batch = make_batch(recurrence, LENGTHS, dtype=dtype, key_dim=key_dim, value_dim=64)
    assert batch.log_gate is not None
    pool = 0.3 * torch.randn(8, 2, 64, key_dim, generator=torch.Generator().manual_seed(1))
    theirs = pool.clone()
    slots = [3, -1, 5]
    tracked = torch.full((3, 2, 64, key_dim), torch.nan)
    gate = {"g": batch.log_gate} if recurrence == "gdn" else {"gk": batch.log_gate}
    plan = plan_snapshots(LENGTHS, None, [{64: 0}, {0: 1}, {64: 6, 320: 2, 448: 7}])
    states, values = chunk_delta_h.chunk_gated_delta_rule_fwd_h(
        k=batch.key,
        w=batch.reader,
        u=batch.update,
        **gate,
        initial_state=theirs,
        initial_state_indices=torch.tensor(slots, dtype=torch.int32),
        cu_seqlens=plan.cu_tokens,
        use_exp2=recurrence == "kda",
        track_state=tracked,
        track_chunk_idx=torch.tensor([1, 0, 5], dtype=torch.int32),
    )
    result = run(batch, pool, slots, plan, gate_base_2=recurrence == "kda")
    assert result.states is not None and result.new_values is not None
    assert torch.equal(result.states, states)
    assert torch.equal(result.new_values, values)
    assert torch.equal(pool[[3, 5]], theirs[[3, 5]])
    assert torch.equal(pool[:3], tracked)
