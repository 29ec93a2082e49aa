"""A whole model resumed from checkpoints of one prefill gives the bits of the uncut run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM
from fla.models.utils import Cache
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from spc_sglang.kernels import interpreter
from spc_sglang.kernels.checkpointed.cache import CheckpointedCache
from spc_sglang.kernels.checkpointed.capture import install

install()
interpreter.adapt(*(module for name, module in sys.modules.items() if name.startswith("fla.")))

VOCABULARY = 97


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """Two Gated DeltaNet layers with random weights, fp32."""
    torch.manual_seed(0)
    config = GatedDeltaNetConfig(
        hidden_size=32,
        head_dim=32,
        expand_v=1.0,
        num_heads=1,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        intermediate_size=48,
        fuse_norm=False,  # plain torch where the library has it: quicker than the interpreter
        fuse_swiglu=False,
    )
    return GatedDeltaNetForCausalLM(config).eval()


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    return torch.randint(3, VOCABULARY, (1, 230), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def cache(model: nn.Module, tokens: Tensor) -> CheckpointedCache:
    return CheckpointedCache(model, tokens, positions=[128, 64, 230])


def run(model: nn.Module, tokens: Tensor, past: Any) -> Any:
    with torch.inference_mode():
        return model(tokens, past_key_values=past, use_cache=True)


def test_resumed_logits_and_states_are_bitwise_equal(
    model: nn.Module, tokens: Tensor, cache: CheckpointedCache
) -> None:
    """All tokens behind depth 128, for two rows at once, and the states at the end."""
    resumed = run(model, tokens[:, 128:].repeat(2, 1), cache.at(128, num_sequences=2))
    kept, again = cache.output.past_key_values, resumed.past_key_values
    for row in range(2):
        assert torch.equal(resumed.logits[row], cache.output.logits[0, 128:])
        for layer in range(2):
            assert torch.equal(
                again[layer]["recurrent_state"][row], kept[layer]["recurrent_state"][0]
            )
            for new, old in zip(again[layer]["conv_state"], kept[layer]["conv_state"], strict=True):
                assert torch.equal(new[row], old[0])
    assert again.get_seq_length() == 230


def test_the_last_position_is_what_the_library_keeps(cache: CheckpointedCache) -> None:
    kept, ours = cache.output.past_key_values, cache.at(230)
    for layer in range(2):
        assert torch.equal(ours[layer]["recurrent_state"], kept[layer]["recurrent_state"])
        for new, old in zip(ours[layer]["conv_state"], kept[layer]["conv_state"], strict=True):
            assert torch.equal(new, old)


def test_a_checkpoint_survives_its_use(
    model: nn.Module, tokens: Tensor, cache: CheckpointedCache
) -> None:
    """One-token steps write to the convolution states in place: they get copies."""
    first, second = (run(model, tokens[:, 64:65], cache.at(64)).logits for _ in range(2))
    assert torch.equal(first, second)
    assert (first[0, 0] - cache.output.logits[0, 64]).abs().max() < 1e-4


def test_a_cache_can_start_from_a_checkpoint(
    model: nn.Module, tokens: Tensor, cache: CheckpointedCache
) -> None:
    """Depths stay absolute, and the windows close behind the start reach into the old ones."""
    second = CheckpointedCache(model, tokens[:, 64:], [64, 128], past=cache.at(64))
    for depth in (64, 128):
        ours, reference = second.at(depth), cache.at(depth)
        for layer in range(2):
            assert torch.equal(ours[layer]["recurrent_state"], reference[layer]["recurrent_state"])
            pairs = zip(ours[layer]["conv_state"], reference[layer]["conv_state"], strict=True)
            assert all(torch.equal(new, old) for new, old in pairs)


class Hybrid(nn.Module):
    """Attention, then a Gated DeltaNet without convolutions, as the library's layers keep them.

    The library's own attention needs flash-attn, which has no CPU build.
    """

    def forward(self, input_ids: Tensor, past_key_values: Any, use_cache: bool) -> Any:
        assert use_cache
        past = Cache() if past_key_values is None else past_key_values
        old = past[1]["recurrent_state"] if len(past) else None
        angles = input_ids[..., None, None] * torch.arange(1, 33)
        x = torch.sin(angles.float())  # [B, T, 1, 32]
        length = x.shape[1]
        keys, values = past.update(layer_idx=0, attn_state=(x, x))["attn_state"]
        mask = torch.ones(length, keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - length)
        by_head = (t.transpose(1, 2) for t in (x, keys, values))
        mixed = scaled_dot_product_attention(*by_head, attn_mask=mask).transpose(1, 2).contiguous()
        gate = torch.full(x.shape[:3], -0.01)
        output, state = chunk_gated_delta_rule(
            mixed,
            x / x.norm(dim=-1, keepdim=True),
            mixed,
            gate,
            gate.exp(),
            initial_state=old,
            output_final_state=True,
        )
        past.update(layer_idx=1, recurrent_state=state, offset=length)
        return SimpleNamespace(logits=output, past_key_values=past)


def test_attention_layers_are_cut(tokens: Tensor) -> None:
    """Keys and values up to the depth, beside the state of the recurrent layer."""
    model = Hybrid()
    cache = CheckpointedCache(model, tokens, [128])
    past = cache.at(128)
    assert past[0]["attn_state"][0].shape[1] == 128 and past.get_seq_length() == 128
    resumed = run(model, tokens[:, 128:], past)
    difference = (resumed.logits - cache.output.logits[:, 128:]).abs().max()
    assert difference < 1e-5  # torch's attention rounds by the number of queries
    assert cache.output.past_key_values[0]["attn_state"][0].shape[1] == 230


def test_refusals(model: nn.Module, tokens: Tensor, cache: CheckpointedCache) -> None:
    with pytest.raises(ValueError, match="no checkpoint at 100"):
        cache.at(100)
    with pytest.raises(ValueError, match="are 64 and 128"):
        CheckpointedCache(model, tokens, [100])
    with pytest.raises(RuntimeError, match="64 tokens or fewer never do"):
        CheckpointedCache(model, tokens[:, :9], [9])
    with pytest.raises(ValueError, match="one sequence at a time, not 2"):
        CheckpointedCache(model, tokens.repeat(2, 1), [64])
