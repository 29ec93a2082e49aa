"""Copies of state pool rows, all layers in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
NUM_WARPS = 4


@triton.jit
def copy_rows_kernel(
    source_pool,
    source_layer,
    source_row,
    pool,
    pool_layer,
    pool_row,
    source,
    target,
    row_elements,
    TILE: tl.constexpr,
):
    """Grid (L, P, ceil(row_elements / TILE)); a program moves TILE elements of one row."""
    layer = tl.program_id(0).to(tl.int64)
    pair = tl.program_id(1)
    from_row = tl.load(source + pair).to(tl.int64)
    to_row = tl.load(target + pair).to(tl.int64)
    if (from_row >= 0) & (to_row >= 0):
        element = tl.program_id(2) * TILE + tl.arange(0, TILE)
        inside = element < row_elements
        value = tl.load(
            source_pool + layer * source_layer + from_row * source_row + element, mask=inside
        )
        tl.store(
            pool + layer * pool_layer + to_row * pool_row + element,
            value.to(pool.dtype.element_ty),
            mask=inside,
        )


def copy_rows(source_pool: Tensor, source: Tensor, pool: Tensor, target: Tensor) -> None:
    """pool[:, target[p]] = source_pool[:, source[p]] for all p, cast to the dtype of `pool`.

    Both pools [L, S, ...] with the same contiguous rows and any layer and row strides; they may
    be one pool. source, target int32 [P], a pair with a -1 is skipped. No row may be both a source
    and a target, nor a target twice.
    """
    row = pool[0, 0]
    assert source_pool.shape[0] == pool.shape[0], (source_pool.shape, pool.shape)
    if source_pool.shape[2:] != row.shape:
        raise ValueError(f"rows of {tuple(source_pool.shape[2:])} do not fit {tuple(row.shape)}")
    if not (row.is_contiguous() and source_pool[0, 0].is_contiguous()):
        raise ValueError(f"rows must be contiguous: {source_pool.stride()}, {pool.stride()}")
    if source.numel() == 0:
        return
    copy_rows_kernel[(pool.shape[0], source.numel(), triton.cdiv(row.numel(), TILE))](
        source_pool,
        source_pool.stride(0),
        source_pool.stride(1),
        pool,
        pool.stride(0),
        pool.stride(1),
        source,
        target,
        row.numel(),
        TILE=TILE,
        num_warps=NUM_WARPS,
    )
