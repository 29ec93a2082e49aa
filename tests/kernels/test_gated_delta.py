"""Chunked prefill and decode update of the gated delta rule against the token-by-token oracle."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spc_sglang.kernels.gated_delta import naive

SHAPES = [(2, 16, 16), (4, 32, 32), (3, 32, 64)]  # HV, K, V
LENGTHS = [1, 63, 64, 65, 200, 256]


def make_inputs(num_tokens: int, shape: tuple[int, int, int], seed: int) -> list[Tensor]:
    """query, key, value, log_decay, beta and a state that is not zero."""
    heads, key_dim, value_dim = shape
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    query, key = naive.prepare_query_key(
        normal(num_tokens, heads, key_dim),
        normal(num_tokens, heads, key_dim),
        heads,
        normalize=True,
    )
    # slow decay and small steps, or the state at a cut is forgotten before the end
    log_decay = -torch.rand(num_tokens, heads, generator=generator) * 0.01
    beta = torch.rand(num_tokens, heads, generator=generator) * 0.1
    value, state = normal(num_tokens, heads, value_dim), normal(heads, value_dim, key_dim)
    return [query, key, value, log_decay, beta, state]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_chunked_equals_token_by_token(shape: tuple[int, int, int], num_tokens: int) -> None:
    """Outputs, last state and every 64th state agree to fp32 rounding; arguments are untouched."""
    inputs = make_inputs(num_tokens, shape, seed=num_tokens)
    before = [tensor.clone() for tensor in inputs]
    slow, fast = naive.recurrent(*inputs), naive.chunked(*inputs)
    for expected, found in zip(slow, fast, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        assert found.dtype == torch.float32
    assert all(torch.equal(*pair) for pair in zip(before, inputs, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_tokens", [128, 200, 333])
def test_cut_at_any_multiple_of_64_is_bit_equal(
    shape: tuple[int, int, int], num_tokens: int
) -> None:
    """Resuming from a returned state repeats the uncut run exactly, whatever the cut."""
    *rows, state = make_inputs(num_tokens, shape, seed=num_tokens + 1)
    whole = naive.chunked(*rows, state)
    for cut in range(64, num_tokens, 64):
        head = naive.chunked(*(row[:cut] for row in rows), state)
        tail = naive.chunked(*(row[cut:] for row in rows), head.state)
        assert torch.equal(head.state, whole.chunk_states[cut // 64]), cut
        assert torch.equal(torch.cat([head.output, tail.output]), whole.output), cut
        assert torch.equal(tail.state, whole.state), cut
        states = torch.cat([head.chunk_states, tail.chunk_states])
        assert torch.equal(states, whole.chunk_states), cut


def test_rounding_the_state_once_is_not_bit_equal() -> None:
    """The equality above sees a bf16 checkpoint: the negative control."""
    *rows, state = make_inputs(256, SHAPES[1], seed=5)
    whole = naive.chunked(*rows, state)
    rounded = whole.chunk_states[1].bfloat16().float()
    tail = naive.chunked(*(row[64:] for row in rows), rounded)
    assert not torch.equal(tail.state, whole.state)


def test_cut_off_the_grid_stays_close() -> None:
    """A cut that is no multiple of 64 shifts the chunks: equal to rounding, not to the bit."""
    *rows, state = make_inputs(200, SHAPES[1], seed=6)
    whole = naive.chunked(*rows, state)
    head = naive.chunked(*(row[:100] for row in rows), state)
    tail = naive.chunked(*(row[100:] for row in rows), head.state)
    torch.testing.assert_close(tail.state, whole.state, atol=2e-5, rtol=1e-4)


def test_strong_decay_does_not_overflow() -> None:
    """A decay of exp(-20) a token underflows to zero and leaves every value finite."""
    query, key, value, log_decay, beta, state = make_inputs(130, SHAPES[0], seed=7)
    result = naive.chunked(query, key, value, torch.full_like(log_decay, -20.0), beta, state)
    assert all(torch.isfinite(tensor).all() for tensor in result)


def test_decode_repeats_the_recurrence_and_ignores_the_batch() -> None:
    """One step equals the oracle's, and a row alone gives the same bits as in a batch."""
    query, key, value, log_decay, beta, _ = make_inputs(5, SHAPES[1], seed=8)
    states = torch.randn(5, 4, 32, 32, generator=torch.Generator().manual_seed(9))
    rows = (query, key, value, log_decay, beta, states)
    output, new_states = naive.decode_update(*rows)
    for row in range(5):
        oracle = naive.recurrent(*(tensor[row : row + 1] for tensor in rows[:5]), states[row])
        torch.testing.assert_close(output[row], oracle.output[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(new_states[row], oracle.state, atol=1e-5, rtol=1e-4)
        alone = naive.decode_update(*(tensor[row : row + 1] for tensor in rows))
        assert torch.equal(alone[0][0], output[row]) and torch.equal(alone[1][0], new_states[row])


def test_a_decay_a_channel_is_the_same_rule_and_can_be_cut_anywhere() -> None:
    """KDA: equal channels give the scalar decay's result, and different ones their own."""
    query, key, value, log_decay, beta, state = make_inputs(70, SHAPES[1], seed=11)
    channels = log_decay[..., None].expand(*log_decay.shape, 32)
    scalar = naive.recurrent(query, key, value, log_decay, beta, state)
    found = naive.recurrent(query, key, value, channels, beta, state)
    for one, other in zip(scalar, found, strict=True):
        assert torch.equal(one, other)
    varied = channels * torch.linspace(0.5, 5, 32)
    rows = (query, key, value, varied, beta)
    whole = naive.recurrent(*rows, state)
    assert (whole.output - found.output).abs().max() > 1e-3
    for cut in (1, 33, 64):
        head = naive.recurrent(*(row[:cut] for row in rows), state)
        tail = naive.recurrent(*(row[cut:] for row in rows), head.state)
        assert torch.equal(torch.cat([head.output, tail.output]), whole.output), cut
        assert torch.equal(tail.state, whole.state)
    step, states = naive.decode_update(*(row[:1] for row in rows), state[None])
    torch.testing.assert_close(step[0], whole.output[0], atol=1e-5, rtol=1e-4)
    expected = naive.recurrent(*(row[:1] for row in rows), state).state
    torch.testing.assert_close(states[0], expected, atol=1e-5, rtol=1e-4)


def test_query_and_key_are_expanded_to_the_value_heads() -> None:
    """Each key head serves consecutive value heads; queries carry the scale, keys do not."""
    raw = torch.randn(3, 2, 16, generator=torch.Generator().manual_seed(10))
    query, key = naive.prepare_query_key(raw.bfloat16(), raw, 4, normalize=True)
    assert query.shape == key.shape == (3, 4, 16)
    assert torch.equal(key[:, 0], key[:, 1]) and torch.equal(key[:, 2], key[:, 3])
    torch.testing.assert_close(key.norm(dim=-1), torch.ones(3, 4), atol=1e-4, rtol=0)
    torch.testing.assert_close(query.norm(dim=-1), torch.full((3, 4), 0.25), atol=1e-4, rtol=0)
