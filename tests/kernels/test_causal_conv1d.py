"""Shifted multiply-add convolution against torch's conv1d."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spc_sglang.kernels.causal_conv1d import naive

DIM, WIDTH = 64, 4


def make_inputs(
    num_tokens: int, dtype: torch.dtype, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """inputs [T, D], weight [D, W], bias [D] and a window [D, W - 1]."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((num_tokens, DIM), (DIM, WIDTH), (DIM,), (DIM, WIDTH - 1))
    inputs, weight, bias, window = (torch.randn(size, generator=generator) for size in sizes)
    return inputs.to(dtype), weight.to(dtype), bias.to(dtype), window.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 70])
@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_prefill_equals_conv1d(
    dtype: torch.dtype, num_tokens: int, activate: bool, resumed: bool
) -> None:
    """Outputs agree; the window is exactly the last inputs, short sequences included."""
    inputs, weight, bias, window = make_inputs(num_tokens, dtype, seed=num_tokens)
    arguments = (inputs, weight, bias if activate else None, window if resumed else None)
    output, left = naive.prefill(*arguments, activate=activate)
    expected, expected_left = naive.reference(*arguments, activate=activate)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)
    assert output.dtype == dtype and torch.equal(left, expected_left)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_cut_is_bit_equal(dtype: torch.dtype) -> None:
    """Each output adds the same products in the same order wherever the sequence is cut."""
    inputs, weight, bias, window = make_inputs(70, dtype, seed=1)
    whole, last = naive.prefill(inputs, weight, bias, window, activate=True)
    for cut in (1, 2, 33, 64, 69):
        head, carried = naive.prefill(inputs[:cut], weight, bias, window, activate=True)
        tail, left = naive.prefill(inputs[cut:], weight, bias, carried, activate=True)
        assert torch.equal(torch.cat([head, tail]), whole) and torch.equal(left, last), cut


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decode_equals_prefill_of_one_token(dtype: torch.dtype) -> None:
    """Each row of a decode batch gives the bits of its own one-token prefill."""
    inputs, weight, bias, _ = make_inputs(5, dtype, seed=2)
    windows = torch.randn(5, DIM, WIDTH - 1, generator=torch.Generator().manual_seed(3)).to(dtype)
    output, left = naive.decode_update(inputs, weight, bias, windows, activate=True)
    for row in range(5):
        alone, window = naive.prefill(
            inputs[row : row + 1], weight, bias, windows[row], activate=True
        )
        assert torch.equal(alone[0], output[row]) and torch.equal(window, left[row])
