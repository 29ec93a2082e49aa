"""State pass of a chunked prefill that stores many fp32 states on its way.

Per head and chunk of C = 64 tokens, with the state S [K, V] in fp32 registers, operands in the
dtype of `key` and sums in fp32 (Yang et al., "Gated Delta Networks", 2024, section 3.3; Kimi
Linear, 2025, for the gate per channel):

    v_new = u - w S                        (delta rule; else v_new = u)
    S <- decay S + key^T (v_new * decay of the tokens up to the chunk's end)

Before each chunk the state goes to `states`, rounded, for the output kernel; where the plan asks
for it, the same registers also go to a pool row as they are, in the dtype of that pool. A pool
in bf16 holds the fp32 state rounded once, which is what a run that ended there would leave in it.

A program owns 32 value columns of one head of one sequence. The key dimension is cut in tiles of
64 because that fixes the order of the sums: SGLang's and FLA's kernels cut it so, and another
cut rounds differently.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from spc_sglang.kernels.gated_delta.plan import CHUNK_TOKENS, SnapshotPlan

KEY_TILE = 64
MAX_KEY_DIM = 2 * KEY_TILE
VALUE_TILE = 32  # 64 spills registers on sm_100
NUM_WARPS = 4
NUM_STAGES = 2


class Gate(IntEnum):
    """Shape of the log gates: none, one a head [T, HV], or one a key channel [T, HV, K]."""

    NONE = 0
    HEAD = 1
    CHANNEL = 2


class StatePassResult(NamedTuple):
    """What the output kernel of a chunked prefill reads, both None where not asked for."""

    states: Tensor | None  # [1, sum NT, HV, V, K] (or K, V), state entering each chunk
    new_values: Tensor | None  # [1, T, HV, V]


@triton.jit
def _decay(log_gate, BASE_2: tl.constexpr):
    return tl.exp2(log_gate) if BASE_2 else tl.exp(log_gate)


@triton.jit
def _load_tile(base, offsets, inside):
    return tl.load(base + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _store_tile(base, offsets, inside, tile):
    tl.store(base + offsets, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def state_pass_kernel(
    key,
    update,
    reader,
    log_gate,
    states,
    new_values,
    pool,
    pool_stride,
    slots,
    snapshot_pool,
    snapshot_stride,
    cu_tokens,
    chunk_base,
    first,
    snapshot_chunk,
    snapshot_slot,
    HV: tl.constexpr,
    HK: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    STATE_K: tl.constexpr,  # distance of neighbouring keys in a stored state
    STATE_V: tl.constexpr,  # and of neighbouring values
    CHUNK: tl.constexpr,
    TILE_V: tl.constexpr,
    GATE: tl.constexpr,
    BASE_2: tl.constexpr,
    DELTA: tl.constexpr,
    STORE_STATES: tl.constexpr,
    STORE_VALUES: tl.constexpr,
    SNAPSHOTS: tl.constexpr,
    WRITE_BACK: tl.constexpr,
):
    """Grid (ceil(V / TILE_V), N * HV); see `state_pass` for the tensors."""
    sequence = tl.program_id(1) // HV
    head = tl.program_id(1) % HV
    start = tl.load(cu_tokens + sequence).to(tl.int64)
    num_tokens = (tl.load(cu_tokens + sequence + 1) - start).to(tl.int32)
    num_chunks = tl.cdiv(num_tokens, CHUNK)

    k_0 = tl.arange(0, 64)
    cols = tl.program_id(0) * TILE_V + tl.arange(0, TILE_V)
    cols_ok = cols < V
    head_offset = head.to(tl.int64) * (K * V)
    at_0 = head_offset + k_0[:, None] * STATE_K + cols[None, :] * STATE_V
    ok_0 = (k_0 < K)[:, None] & cols_ok[None, :]
    k_1 = k_0 + 64  # the second tile exists for K > 64 only
    at_1 = at_0 + 64 * STATE_K
    ok_1 = (k_1 < K)[:, None] & cols_ok[None, :]

    slot = tl.load(slots + sequence).to(tl.int64)
    state_0 = tl.zeros([64, TILE_V], dtype=tl.float32)
    if K > 64:
        state_1 = tl.zeros([64, TILE_V], dtype=tl.float32)
    if slot >= 0:
        state_0 += _load_tile(pool + slot * pool_stride, at_0, ok_0)
        if K > 64:
            state_1 += _load_tile(pool + slot * pool_stride, at_1, ok_1)

    if SNAPSHOTS:
        entry = tl.load(first + sequence)
        next_chunk = tl.load(snapshot_chunk + entry)
    states += (tl.load(chunk_base + sequence).to(tl.int64) * HV) * (K * V)
    key += (start * HK + head // (HV // HK)) * K
    update += (start * HV + head) * V
    new_values += (start * HV + head) * V
    reader += (start * HV + head) * K
    if GATE == 1:
        log_gate += start * HV + head
    if GATE == 2:
        log_gate += (start * HV + head) * K

    for chunk in range(num_chunks):
        if SNAPSHOTS:  # noqa: SIM102 - the outer test is settled when compiling
            if next_chunk == chunk:
                row = tl.load(snapshot_slot + entry).to(tl.int64)
                if row >= 0:
                    _store_tile(snapshot_pool + row * snapshot_stride, at_0, ok_0, state_0)
                    if K > 64:
                        _store_tile(snapshot_pool + row * snapshot_stride, at_1, ok_1, state_1)
                entry += 1
                next_chunk = tl.load(snapshot_chunk + entry)
        if STORE_STATES:
            _store_tile(states, at_0, ok_0, state_0)
            if K > 64:
                _store_tile(states, at_1, ok_1, state_1)
            states += HV * K * V

        token = chunk * CHUNK + tl.arange(0, CHUNK)
        token_ok = token < num_tokens
        value_at = token[:, None] * (HV * V) + cols[None, :]
        value_ok = token_ok[:, None] & cols_ok[None, :]
        value = tl.load(update + value_at, mask=value_ok, other=0.0).to(tl.float32)
        if DELTA:
            read_at = reader + token[:, None] * (HV * K)
            w_0 = tl.load(
                read_at + k_0[None, :], mask=token_ok[:, None] & (k_0 < K)[None, :], other=0.0
            )
            read = tl.dot(w_0, state_0.to(w_0.dtype))
            if K > 64:
                w_1 = tl.load(
                    read_at + k_1[None, :], mask=token_ok[:, None] & (k_1 < K)[None, :], other=0.0
                )
                read += tl.dot(w_1, state_1.to(w_1.dtype))
            value -= read
        if STORE_VALUES:
            tl.store(new_values + value_at, value.to(new_values.dtype.element_ty), mask=value_ok)

        last = min((chunk + 1) * CHUNK, num_tokens) - 1
        if GATE == 1:
            to_end = tl.load(log_gate + last * HV).to(tl.float32)
            so_far = tl.load(log_gate + token * HV, mask=token_ok, other=0.0).to(tl.float32)
            value *= tl.where(token_ok, _decay(to_end - so_far, BASE_2), 0.0)[:, None]
            decay = _decay(to_end, BASE_2)
            state_0 *= decay
            if K > 64:
                state_1 *= decay
        if GATE == 2:
            gate_at = log_gate + last * (HV * K)
            gate_0 = tl.load(gate_at + k_0, mask=k_0 < K, other=0.0).to(tl.float32)
            state_0 *= _decay(gate_0, BASE_2)[:, None]
            if K > 64:
                gate_1 = tl.load(gate_at + k_1, mask=k_1 < K, other=0.0).to(tl.float32)
                state_1 *= _decay(gate_1, BASE_2)[:, None]

        key_at = key + token[None, :] * (HK * K)
        key_0 = tl.load(
            key_at + k_0[:, None], mask=(k_0 < K)[:, None] & token_ok[None, :], other=0.0
        )
        state_0 += tl.dot(key_0, value.to(key_0.dtype))
        if K > 64:
            key_1 = tl.load(
                key_at + k_1[:, None], mask=(k_1 < K)[:, None] & token_ok[None, :], other=0.0
            )
            state_1 += tl.dot(key_1, value.to(key_1.dtype))

    if SNAPSHOTS:  # noqa: SIM102
        if next_chunk == num_chunks:
            row = tl.load(snapshot_slot + entry).to(tl.int64)
            if row >= 0:
                _store_tile(snapshot_pool + row * snapshot_stride, at_0, ok_0, state_0)
                if K > 64:
                    _store_tile(snapshot_pool + row * snapshot_stride, at_1, ok_1, state_1)
    if WRITE_BACK:  # noqa: SIM102
        if slot >= 0:
            _store_tile(pool + slot * pool_stride, at_0, ok_0, state_0)
            if K > 64:
                _store_tile(pool + slot * pool_stride, at_1, ok_1, state_1)


def state_pass(
    key: Tensor,
    update: Tensor,
    reader: Tensor | None,
    log_gate: Tensor | None,
    pool: Tensor,
    slots: Tensor,
    plan: SnapshotPlan,
    *,
    snapshot_pool: Tensor | None = None,
    gate_base_2: bool = False,
    store_states: bool = True,
    store_values: bool = True,
    write_back: bool = True,
    key_major: bool = False,
    states_dtype: torch.dtype | None = None,
) -> StatePassResult:
    """Run the recurrence over all chunks of N sequences and store the states of `plan`.

    key [1, T, HK, K], update [1, T, HV, V], reader [1, T, HV, K] (None: no delta rule), contiguous.
    log_gate: cumulative within each chunk, [1, T, HV] or [1, T, HV, K] (keys then carry the rest
    of the decay), natural or, with `gate_base_2`, base-2 logarithms; None: no decay.
    pool [S, HV, V, K] (K, V if `key_major`), each row contiguous, any row stride and dtype; row
    slots[n] holds the state of sequence n before and, if `write_back`, after; -1: zeros, dropped.
    snapshot_pool (default `pool`) takes the planned states. ValueError for unsupported shapes.
    """
    num_key_heads, key_dim = key.shape[2:]
    num_heads, value_dim = update.shape[2:]
    target = pool if snapshot_pool is None else snapshot_pool
    row_shape = (num_heads, *((key_dim, value_dim) if key_major else (value_dim, key_dim)))
    gate = _gate_of(log_gate, key_dim)
    _check(key, update, reader, log_gate, (pool, target), row_shape)
    states = new_values = None
    if store_states:
        states = key.new_empty(1, plan.num_chunks, *row_shape, dtype=states_dtype or key.dtype)
    if store_values:
        new_values = torch.empty_like(update)
    grid = (triton.cdiv(value_dim, VALUE_TILE), plan.num_sequences * num_heads)
    # an argument that the kernel will not touch is some tensor of the right kind
    state_pass_kernel[grid](
        key,
        update,
        key if reader is None else reader,
        key if log_gate is None else log_gate,
        key if states is None else states,
        update if new_values is None else new_values,
        pool,
        pool.stride(0),
        slots,
        target,
        target.stride(0),
        plan.cu_tokens,
        plan.chunk_base,
        plan.first,
        plan.chunk,
        plan.slot,
        HV=num_heads,
        HK=num_key_heads,
        K=key_dim,
        V=value_dim,
        STATE_K=value_dim if key_major else 1,
        STATE_V=1 if key_major else key_dim,
        CHUNK=CHUNK_TOKENS,
        TILE_V=VALUE_TILE,
        GATE=int(gate),
        BASE_2=gate_base_2,
        DELTA=reader is not None,
        STORE_STATES=store_states,
        STORE_VALUES=store_values,
        SNAPSHOTS=plan.num_snapshots > 0,
        WRITE_BACK=write_back,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    return StatePassResult(states, new_values)


def _gate_of(log_gate: Tensor | None, key_dim: int) -> Gate:
    if log_gate is None:
        return Gate.NONE
    if log_gate.dim() == 4:
        assert log_gate.shape[-1] == key_dim, (log_gate.shape, key_dim)
        return Gate.CHANNEL
    return Gate.HEAD


def _check(
    key: Tensor,
    update: Tensor,
    reader: Tensor | None,
    log_gate: Tensor | None,
    pools: tuple[Tensor, ...],
    row_shape: tuple[int, ...],
) -> None:
    if key.shape[-1] > MAX_KEY_DIM:
        raise ValueError(f"key dimension {key.shape[-1]} is above {MAX_KEY_DIM}")
    if update.shape[2] % key.shape[2]:
        raise ValueError(f"{update.shape[2]} value heads do not share {key.shape[2]} key heads")
    for name, tensor in (("key", key), ("update", update), ("reader", reader), ("gate", log_gate)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, strides are {tensor.stride()}")
    for pool in pools:
        if tuple(pool.shape[1:]) != row_shape or not pool[0].is_contiguous():
            raise ValueError(
                f"a pool row must be contiguous and of shape {row_shape}: found shape "
                f"{tuple(pool.shape[1:])}, strides {pool.stride()}"
            )
