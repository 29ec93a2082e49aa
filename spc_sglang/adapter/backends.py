"""Which recurrent states a prefill backend can hand out inside a forward, and how exactly."""

from __future__ import annotations

import enum
import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)


class InteriorStates(enum.Enum):
    """Whether the states between the ends of a forward are as exact as the pool can hold."""

    EXACT = "exact"
    NONE = "none"


def interior_states(model_runner: Any) -> InteriorStates:
    """What the chosen gated-delta prefill kernel offers; logged once.

    The CPU provider keeps fp32. FlashInfer stores its states in the dtype of the initial
    state. Triton returns them in the activation dtype, which rounds an fp32 pool's states
    when the model runs in bf16; CuTe DSL returns none.
    """
    backend = getattr(model_runner.attn_backend, "linear_attn_backend", None)
    pool = model_runner.req_to_token_pool.mamba_pool.mamba_cache.temporal.dtype
    if backend is None or type(backend).__name__ != "GDNAttnBackend":
        return _none(f"{type(backend).__name__} is not a backend that we can capture from")
    kernel = type(backend.kernel_dispatcher.extend_kernel).__name__
    if torch.device(model_runner.device).type == "cpu":
        return InteriorStates.EXACT
    if kernel == "FlashInferGDNKernel":
        return InteriorStates.EXACT
    if kernel == "TritonGDNKernel" and _holds(model_runner.dtype, pool):
        return InteriorStates.EXACT
    if kernel == "TritonGDNKernel":
        return _none(
            f"the Triton prefill rounds its states to {model_runner.dtype} while the pool holds "
            f"{pool}; use --linear-attn-prefill-backend flashinfer where available"
        )
    return _none(f"{kernel} returns no states inside a forward")


def _holds(narrow: torch.dtype, pool: torch.dtype) -> bool:
    """Whether storing through `narrow` loses nothing that `pool` could keep."""
    return torch.promote_types(narrow, pool) == narrow


def _none(reason: str) -> InteriorStates:
    logger.warning("spc-sglang captures no checkpoints of its own: %s.", reason)
    return InteriorStates.NONE
