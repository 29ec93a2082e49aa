"""Twin of the window kernel in PyTorch: one position after another."""

from __future__ import annotations

import torch
from torch import Tensor


def capture(
    inputs: Tensor,
    pool: Tensor,
    position: Tensor,
    start: Tensor,
    source: Tensor,
    target: Tensor,
) -> None:
    """Write P windows into `pool`; the same arguments and effect as `triton.capture`."""
    before = pool.clone()
    width = pool.shape[-1]
    rows = zip(position.tolist(), start.tolist(), source.tolist(), target.tolist(), strict=True)
    for end, first, old_row, new_row in rows:
        if new_row < 0:
            continue
        history = before[:, old_row] if old_row >= 0 else torch.zeros_like(before[:, 0])
        fresh = inputs[:, first:end].transpose(1, 2).to(pool.dtype)  # [L, D, end - first]
        pool[:, new_row] = torch.cat([history, fresh], dim=-1)[..., -width:]
