"""Normalizations, gates and layout changes around GDN and gated attention.

Row-wise, fp32 inside, results in the dtype of their input: no row depends on another.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus


def rms_norm(rows: Tensor, eps: float) -> Tensor:
    """Rows [.., D] as fp32 with mean square 1."""
    wide = rows.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def rms_norm_gated(
    rows: Tensor, weight: Tensor, gate: Tensor, eps: float, *, sigmoid: bool = False
) -> Tensor:
    """rms_norm(rows) * weight * SiLU(gate), or sigmoid(gate); rows, gate [.., D], weight [D]."""
    factor = torch.sigmoid(gate.float()) if sigmoid else silu(gate.float())
    return (rms_norm(rows, eps) * weight.float() * factor).to(rows.dtype)


def gemma_rms_norm(rows: Tensor, weight: Tensor, eps: float, head_dim: int) -> Tensor:
    """rms_norm(rows) * (1 + weight) on heads of `head_dim` values: [T, H * D] -> [T * H, D]."""
    heads = rows.reshape(-1, head_dim)
    return (rms_norm(heads, eps) * (1.0 + weight.float())).to(rows.dtype)


def split_query_gate(query_gate: Tensor, num_heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """[T, H * 2 * D], each head's query before its gate, -> query and gate [T * H, D] copies."""
    heads = query_gate.reshape(-1, num_heads, 2, head_dim)
    query, gate = heads.unbind(2)
    return query.contiguous().view(-1, head_dim), gate.contiguous().view(-1, head_dim)


def sigmoid_multiply_(rows: Tensor, gate: Tensor) -> Tensor:
    """rows * sigmoid(gate), written into `rows`; gate has as many elements."""
    return rows.mul_(torch.sigmoid(gate.float()).to(rows.dtype).view_as(rows))


def split_qkvzba(
    qkvz: Tensor, ba: Tensor, key_dim: int, value_dim: int, num_value_heads: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """qkvz [T, 2 KD + 2 VD] and ba [T, 2 HV] -> qkv [T, 2 KD + VD], z [T, HV, V], b and a [T, HV].

    key_dim KD and value_dim VD are over all heads. Contiguous copies.
    """
    qkv, z = qkvz.split([2 * key_dim + value_dim, value_dim], dim=-1)
    b, a = ba.split([num_value_heads, num_value_heads], dim=-1)
    heads = z.reshape(-1, num_value_heads, value_dim // num_value_heads)
    return qkv.clone(), heads.clone(), b.clone(), a.clone()


def delta_gates(
    a_log: Tensor,
    a: Tensor,
    b: Tensor,
    dt_bias: Tensor,
    *,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
) -> tuple[Tensor, Tensor]:
    """fp32 log decay (<= 0) and beta (0 .. 1) of GDN, both [T, HV].

    a, b [T, HV]; a_log, dt_bias [HV]. KDA's decay has a value a key channel: then a [T, HV, K],
    dt_bias [HV, K] and a_log [HV, 1].
    """
    step = softplus(a.float() + dt_bias.float(), softplus_beta, softplus_threshold)
    return -a_log.float().exp() * step, torch.sigmoid(b.float())


def shared_expert_gate(hidden: Tensor, gate_weight: Tensor, shared_output: Tensor) -> Tensor:
    """sigmoid(hidden @ gate_weight) * shared_output as fp32 [T, D]; gate_weight [D]."""
    gate = torch.sigmoid(hidden.float() @ gate_weight.float().reshape(-1, 1))
    return gate * shared_output.float()
