"""Twin of the row copy in PyTorch."""

from __future__ import annotations

from torch import Tensor


def copy_rows(source_pool: Tensor, source: Tensor, pool: Tensor, target: Tensor) -> None:
    """Copy P rows in all layers; the same arguments and effect as `triton.copy_rows`."""
    for old_row, new_row in zip(source.tolist(), target.tolist(), strict=True):
        if old_row >= 0 and new_row >= 0:
            pool[:, new_row] = source_pool[:, old_row].to(pool.dtype)
