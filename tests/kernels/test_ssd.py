"""Chunked prefill and decode update of Mamba2's recurrence against the token-by-token oracle."""

from __future__ import annotations

import pytest
import torch

from spc_sglang.kernels.ssd import naive

HEADS, GROUPS, HEAD_DIM, STATE_DIM = 4, 2, 16, 8
CHUNK = 64


def make_inputs(num_tokens: int, seed: int) -> tuple[naive.Tokens, torch.Tensor, torch.Tensor]:
    """Tokens, rate and a state that is not zero; slow decay, or a cut would be forgotten."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator)

    tokens = naive.Tokens(
        normal(num_tokens, HEADS, HEAD_DIM),
        torch.rand(num_tokens, HEADS, generator=generator) * 0.1,
        normal(num_tokens, GROUPS, STATE_DIM),
        normal(num_tokens, GROUPS, STATE_DIM),
    )
    rate = -torch.rand(HEADS, generator=generator) * 0.2
    return tokens, rate, normal(HEADS, HEAD_DIM, STATE_DIM)


@pytest.mark.parametrize("offset", [0, 40, 64])
@pytest.mark.parametrize("num_tokens", [1, 63, 64, 65, 200])
def test_chunked_equals_token_by_token(num_tokens: int, offset: int) -> None:
    """Outputs, last state and the states between pieces, wherever the sequence starts."""
    tokens, rate, state = make_inputs(num_tokens, seed=num_tokens)
    output, last = naive.recurrent(tokens, rate, state)
    result = naive.chunked(tokens, rate, state, chunk=CHUNK, offset=offset)
    torch.testing.assert_close(result.output, output, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(result.state, last, atol=2e-5, rtol=1e-4)
    assert result.starts == [
        token for token in range(num_tokens) if token == 0 or (offset + token) % CHUNK == 0
    ]
    for start, entering in zip(result.starts, result.entering, strict=True):
        expected = naive.recurrent(tokens.span(0, start), rate, state)[1]
        torch.testing.assert_close(entering, expected, atol=2e-5, rtol=1e-4)


def test_cut_on_the_grid_is_bit_equal_and_elsewhere_rounds() -> None:
    """Alone in a batch, a resumed run repeats the uncut one; behind 40 tokens it does not."""
    tokens, rate, state = make_inputs(333, seed=1)
    whole = naive.chunked(tokens, rate, state, chunk=CHUNK)
    for cut in range(CHUNK, 333, CHUNK):
        entering = whole.entering[cut // CHUNK]
        assert torch.equal(naive.state_at(tokens, rate, whole, cut), entering)
        tail = naive.chunked(tokens.span(cut, 333), rate, entering, chunk=CHUNK)
        assert torch.equal(tail.output, whole.output[cut:]), cut
        assert torch.equal(tail.state, whole.state)
    shifted = naive.chunked(tokens, rate, state, chunk=CHUNK, offset=40)
    assert not torch.equal(shifted.output, whole.output)
    torch.testing.assert_close(shifted.output, whole.output, atol=2e-5, rtol=1e-4)
    for depth in (1, 64, 100, 333):  # off its grid, where the batch put it
        expected = naive.recurrent(tokens.span(0, depth), rate, state)[1]
        found = naive.state_at(tokens, rate, shifted, depth)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


def test_decode_updates_each_row_by_itself() -> None:
    """A batch of single tokens gives what each gives alone."""
    rows, rate, _ = make_inputs(5, seed=2)
    states = torch.randn(5, HEADS, HEAD_DIM, STATE_DIM)
    output, new_states = naive.decode_update(rows, rate, states)
    for row in range(5):
        alone = naive.recurrent(rows.span(row, row + 1), rate, states[row])
        torch.testing.assert_close(output[row], alone[0][0])
        torch.testing.assert_close(new_states[row], alone[1])
