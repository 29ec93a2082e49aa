"""Normalizations, gates and layout changes against torch's own functions and plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from spc_sglang.kernels.gated_norm import naive

DTYPES = [torch.float32, torch.bfloat16]


def normal(*size: int, seed: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor) -> None:
    """Equal to the rounding of the found dtype."""
    tolerance = 1e-5 if found.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norms_equal_torchs(dtype: torch.dtype) -> None:
    """The gated norm and the Gemma norm on heads are torch's rms_norm with their factors."""
    rows, gate, weight = (normal(6, 32, seed=s).to(dtype) for s in (1, 2, 3))
    weight = weight[0]
    plain = functional.rms_norm(rows.float(), (32,), eps=1e-6)
    found = naive.rms_norm_gated(rows, weight, gate, 1e-6)
    close(found, plain * weight.float() * functional.silu(gate.float()))
    opened = naive.rms_norm_gated(rows, weight, gate, 1e-6, sigmoid=True)
    close(opened, plain * weight.float() * torch.sigmoid(gate.float()))
    heads = naive.gemma_rms_norm(rows.view(3, 64), weight, 1e-6, 32)
    close(heads, plain * (1 + weight.float()))
    assert found.dtype == heads.dtype == dtype and heads.shape == (6, 32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_do_not_depend_on_the_batch(dtype: torch.dtype) -> None:
    """A row alone and in a batch gives the same bits."""
    rows, gate = normal(7, 32, seed=4).to(dtype), normal(7, 32, seed=5).to(dtype)
    weight = normal(32, seed=6).to(dtype)
    whole = naive.rms_norm_gated(rows, weight, gate, 1e-6)
    for row in range(7):
        alone = naive.rms_norm_gated(rows[row : row + 1], weight, gate[row : row + 1], 1e-6)
        assert torch.equal(alone[0], whole[row])


def test_query_and_gate_alternate_by_head() -> None:
    """[head 0 query, head 0 gate, head 1 query, ..] comes apart into contiguous rows."""
    packed = normal(3, 2 * 2 * 8, seed=7)
    query, gate = naive.split_query_gate(packed, num_heads=2, head_dim=8)
    for token in range(3):
        for head in range(2):
            start = head * 16
            assert torch.equal(query[token * 2 + head], packed[token, start : start + 8])
            assert torch.equal(gate[token * 2 + head], packed[token, start + 8 : start + 16])
    assert query.is_contiguous() and gate.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid_multiply_works_in_place(dtype: torch.dtype) -> None:
    """The gate may have another shape with as many elements."""
    rows, gate = normal(3, 16, seed=8).to(dtype), normal(6, 8, seed=9).to(dtype)
    expected = rows.float() * torch.sigmoid(gate.float()).view(3, 16)
    assert naive.sigmoid_multiply_(rows, gate) is rows
    close(rows, expected)


def test_split_keeps_every_column_in_place() -> None:
    """qkvz and ba are cut at their documented columns, into copies."""
    qkvz, ba = torch.arange(2 * 40.0).view(2, 40), torch.arange(2 * 8.0).view(2, 8)
    qkv, z, b, a = naive.split_qkvzba(qkvz, ba, key_dim=8, value_dim=12, num_value_heads=4)
    assert torch.equal(qkv, qkvz[:, :28]) and torch.equal(z, qkvz[:, 28:].reshape(2, 4, 3))
    assert torch.equal(b, ba[:, :4]) and torch.equal(a, ba[:, 4:])
    qkv.zero_()
    assert qkvz[0, 1] == 1


def test_delta_gates_follow_their_formula() -> None:
    """Decay is at most 1 and beta between 0 and 1, computed in fp32 from bf16 inputs."""
    a, b = normal(5, 4, seed=10).bfloat16(), normal(5, 4, seed=11).bfloat16()
    a_log, dt_bias = normal(4, seed=12), normal(4, seed=13)
    log_decay, beta = naive.delta_gates(a_log, a, b, dt_bias)
    close(log_decay, -a_log.exp() * functional.softplus(a.float() + dt_bias))
    close(beta, torch.sigmoid(b.float()))
    assert log_decay.dtype == beta.dtype == torch.float32 and (log_decay <= 0).all()


def test_shared_expert_gate_is_one_number_a_token() -> None:
    """sigmoid(hidden . weight) scales the whole row."""
    hidden, weight, shared = normal(3, 16, seed=14), normal(16, seed=15), normal(3, 16, seed=16)
    found = naive.shared_expert_gate(hidden, weight, shared)
    for row in range(3):
        close(found[row], torch.sigmoid(hidden[row] @ weight) * shared[row])
