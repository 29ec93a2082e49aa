"""Attention of the new tokens only, against softmax written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spc_sglang.kernels.extend_attention import naive


def make_inputs(num_total: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """query of all tokens with 4 heads, key and value with 2."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((num_total, 4, 32), (num_total, 2, 32), (num_total, 2, 32))
    query, key, value = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    return query, key, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_total", "num_new"), [(1, 1), (70, 70), (70, 1), (200, 72)])
def test_extend_equals_written_out_softmax(
    dtype: torch.dtype, num_total: int, num_new: int
) -> None:
    """New rows of a sequence, with and without a prefix, shared key heads included."""
    query, key, value = make_inputs(num_total, dtype, seed=num_total)
    found = naive.extend(query[-num_new:], key, value, scale=0.2)
    expected = naive.reference(query[-num_new:], key, value, scale=0.2)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cut", [64, 128, 640, 960])
def test_new_rows_equal_the_rows_of_the_whole(dtype: torch.dtype, cut: int) -> None:
    """A hit at a multiple of 64 gives the bits of the cold run."""
    query, key, value = make_inputs(1000, dtype, seed=4)
    whole = naive.extend(query, key, value)
    assert torch.equal(naive.extend(query[cut:], key, value), whole[cut:])
    assert torch.equal(naive.extend(query[:cut], key[:cut], value[:cut]), whole[:cut])


def test_cached_keys_of_another_dtype_are_converted() -> None:
    """A KV cache in bf16 under an fp32 query is read as fp32."""
    query, key, value = make_inputs(20, torch.float32, seed=5)
    found = naive.extend(query, key.bfloat16(), value.bfloat16())
    assert torch.equal(found, naive.extend(query, key.bfloat16().float(), value.bfloat16().float()))
