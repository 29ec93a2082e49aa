"""Causal attention of the new tokens of one sequence over its cached prefix and themselves, fp32.

SGLang's torch_native backend pads the new queries to the whole sequence, so there a prefix hit
saves no attention work. `extend` computes the new rows only, in tiles that end at multiples of 64
of the whole sequence: torch's kernel rounds a row by how many rows and keys a call has, and this
way a run resumed at a multiple of 64 makes the same calls as the uncut one. That costs about half
more time than one call.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

TILE_TOKENS = 64


def extend(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None) -> Tensor:
    """Output [T, H, V] of the last T of L tokens, in the dtype of `query`.

    query [T, H, D], key [L, HK, D], value [L, HK, V] with L >= T and H a multiple of HK. Query t
    sees keys 0 .. L - T + t. `scale` defaults to D ** -0.5.
    """
    num_new, num_heads = query.shape[:2]
    dtype = query.dtype
    num_cached = key.shape[0] - num_new
    grouped = num_heads != key.shape[1]
    # heads first; contiguous, so that a tile's layout does not depend on where the run starts
    query, key, value = (x.float().transpose(0, 1).contiguous() for x in (query, key, value))
    output = torch.empty(num_heads, num_new, value.shape[-1], dtype=torch.float32)
    start = 0
    while start < num_new:
        depth = num_cached + start
        stop = min(start + TILE_TOKENS - depth % TILE_TOKENS, num_new)
        end = num_cached + stop
        output[:, start:stop] = scaled_dot_product_attention(
            query[None, :, start:stop],
            key[None, :, :end],
            value[None, :, :end],
            attn_mask=torch.ones(stop - start, end, dtype=torch.bool).tril(depth),
            scale=scale,
            enable_gqa=grouped,
        )[0]
        start = stop
    return output.transpose(0, 1).to(dtype)


def reference(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None) -> Tensor:
    """The oracle of `extend`: softmax written out in fp32, same arguments and result."""
    num_new, num_total = query.shape[0], key.shape[0]
    group = query.shape[1] // key.shape[1]
    wide_key = key.float().repeat_interleave(group, dim=1)
    wide_value = value.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,lhd->htl", query.float(), wide_key)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    hidden = torch.ones(num_new, num_total, dtype=torch.bool).triu(num_total - num_new + 1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("htl,lhv->thv", weights, wide_value).to(query.dtype)
