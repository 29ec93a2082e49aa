"""Causal attention of the new tokens of one sequence over its cached prefix and themselves.

SGLang's torch_native backend pads the new queries to the whole sequence, so there a prefix hit
saves no attention work. `extend` computes the new rows only.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def extend(query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None) -> Tensor:
    """Output [T, H, V] of the last T of L tokens, in the dtype of `query`.

    query [T, H, D], key [L, HK, D], value [L, HK, V] with L >= T and H a multiple of HK. Query t
    sees keys 0 .. L - T + t. `scale` defaults to D ** -0.5.
    """
    num_new, num_total = query.shape[0], key.shape[0]
    mask = None
    if num_new < num_total:
        mask = torch.ones(num_new, num_total, dtype=torch.bool).tril(num_total - num_new)
    output = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None].to(query.dtype),
        value.transpose(0, 1)[None].to(query.dtype),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output[0].transpose(0, 1)


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
