"""Windows of a causal convolution at many positions of one prefill, all layers in one launch.

The window at a depth is the last W inputs of every channel before it. Near the start of the new
tokens it reaches back into the window that the pool held when the prefill began.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

MAX_TILE = 1024
NUM_WARPS = 4


@triton.jit
def capture_kernel(
    inputs,
    inputs_layer,
    inputs_token,
    inputs_channel,
    pool,
    pool_layer,
    pool_row,
    pool_channel,
    pool_tap,
    position,
    start,
    source,
    target,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid (L, P, ceil(D / TILE)); a program moves one window of TILE channels."""
    layer = tl.program_id(0).to(tl.int64)
    capture = tl.program_id(1)
    channel = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = channel < CHANNELS
    to_row = tl.load(target + capture).to(tl.int64)
    if to_row >= 0:
        end = tl.load(position + capture).to(tl.int64)
        first = tl.load(start + capture).to(tl.int64)
        from_row = tl.load(source + capture).to(tl.int64)
        channel_inputs = inputs + layer * inputs_layer + channel * inputs_channel
        channel_pool = pool + layer * pool_layer + channel * pool_channel
        for tap in tl.static_range(WIDTH):
            token = end - WIDTH + tap
            fresh = tl.load(
                channel_inputs + token * inputs_token, mask=inside & (token >= first), other=0.0
            )
            # input `first - 1` is the last tap of the old window
            stored = tl.load(
                channel_pool + from_row * pool_row + (token - first + WIDTH) * pool_tap,
                mask=inside & (token < first) & (from_row >= 0),
                other=0.0,
            )
            value = tl.where(token >= first, fresh.to(tl.float32), stored.to(tl.float32))
            tl.store(
                channel_pool + to_row * pool_row + tap * pool_tap,
                value.to(pool.dtype.element_ty),
                mask=inside,
            )


def capture(
    inputs: Tensor,
    pool: Tensor,
    position: Tensor,
    start: Tensor,
    source: Tensor,
    target: Tensor,
) -> None:
    """Write the windows at P positions of a prefill into rows of `pool`.

    inputs [L, T, D] and pool [L, S, D, W] with any strides; L is 1 within a layer. int32 [P]:
    position: flat token that the window ends before; start: first flat token of its sequence;
    source: pool row that held the sequence's window before token `start`, -1 for zeros;
    target: pool row to write, -1 for none. No row may be both a source and a target.
    """
    layers, _, channels = inputs.shape
    assert pool.shape[0] == layers and pool.shape[2] == channels, (inputs.shape, pool.shape)
    if position.numel() == 0:
        return
    tile = min(MAX_TILE, triton.next_power_of_2(channels))
    capture_kernel[(layers, position.numel(), triton.cdiv(channels, tile))](
        inputs,
        *inputs.stride(),
        pool,
        *pool.stride(),
        position,
        start,
        source,
        target,
        CHANNELS=channels,
        WIDTH=pool.shape[-1],
        TILE=tile,
        num_warps=NUM_WARPS,
    )
