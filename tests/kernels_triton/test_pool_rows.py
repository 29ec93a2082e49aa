"""Convolution windows and row copies, interpreted, against their naive twins."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spc_sglang.kernels.conv_window import naive as window_twin
from spc_sglang.kernels.conv_window import triton as window
from spc_sglang.kernels.slot_copy import naive as copy_twin
from spc_sglang.kernels.slot_copy import triton as copy

DTYPES = [torch.float32, torch.bfloat16]


def int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def make_rows(dtype: torch.dtype, *, strided: bool) -> tuple[Tensor, Tensor]:
    """Inputs [3, 300, 48] and a pool [3, 12, 48, 3], optionally neither of them contiguous."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    if not strided:
        return normal(3, 300, 48), normal(3, 12, 48, 3)
    return normal(3, 48, 300).transpose(1, 2), normal(3, 12, 5, 50)[:, :, :3, :48].transpose(2, 3)


@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_windows_equal_the_twin(dtype: torch.dtype, strided: bool) -> None:
    """Inside, at the start (old window whole), one and two tokens in, no old window, skipped."""
    inputs, pool = make_rows(dtype, strided=strided)
    position = int32(64, 128, 0, 201, 202, 264, 1, 300)
    start = int32(0, 0, 0, 200, 200, 200, 0, 200)
    source = int32(1, 1, 1, 2, 2, 2, -1, 2)
    target = int32(4, 5, 6, 7, 8, -1, 9, 10)
    expected = pool.clone()
    window_twin.capture(inputs, expected, position, start, source, target)
    untouched = pool[:, [0, 1, 2, 3, 11]].clone()
    window.capture(inputs, pool, position, start, source, target)
    assert torch.equal(pool, expected)
    assert torch.equal(pool[:, [0, 1, 2, 3, 11]], untouched)
    assert torch.equal(pool[:, 4], inputs[:, 61:64].transpose(1, 2))
    assert torch.equal(pool[:, 6], pool[:, 1])


@pytest.mark.parametrize("target_dtype", DTYPES, ids=str)
def test_row_copies_equal_the_twin(target_dtype: torch.dtype) -> None:
    """Between pools with their own strides and dtypes; a pair with -1 moves nothing."""
    generator = torch.Generator().manual_seed(0)
    source_pool = torch.randn(4, 9, 2, 40, 60, generator=generator)
    # envelope layout: the rows of all layers of a slot lie together
    pool = torch.randn(7, 4, 2, 40, 60, generator=generator).to(target_dtype).transpose(0, 1)
    expected = pool.clone()
    pairs = int32(1, 1, -1, 8), int32(5, 6, 2, -1)
    copy_twin.copy_rows(source_pool, pairs[0], expected, pairs[1])
    copy.copy_rows(source_pool, pairs[0], pool, pairs[1])
    assert torch.equal(pool, expected)
    assert torch.equal(pool[:, 5], source_pool[:, 1].to(target_dtype))


def test_a_row_copy_within_one_pool() -> None:
    """A fork: one checkpoint becomes the state of two requests."""
    pool = torch.randn(2, 5, 3, 8, 8)
    kept = pool.clone()
    copy.copy_rows(pool, int32(1, 1), pool, int32(3, 4))
    assert torch.equal(pool[:, 3], kept[:, 1]) and torch.equal(pool[:, 4], kept[:, 1])
    assert torch.equal(pool[:, :3], kept[:, :3])


def test_row_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"rows of \(4, 8\) do not fit \(8, 4\)"):
        copy.copy_rows(torch.zeros(1, 1, 4, 8), int32(0), torch.zeros(1, 1, 8, 4), int32(0))
