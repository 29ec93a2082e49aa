"""Which way to capture a server's prefill kernels allow; SGLang 0.5.23.

| prefill | states it gives | how several are captured |
|---|---|---|
| GDN, CPU provider | all, fp32 | `IndexRows`: rows of its index vectors |
| KDA, CPU provider | all, fp32 | `KdaRows`: the same, SGLang's own capture among them |
| GDN, KDA on Triton | all, dtype of the activations | as above, or `StatePass` if allowed |
| GDN on FlashInfer | every n tokens, dtype of the pool or better | `PackedStates`: choice of n |
| KDA on FlashInfer | any multiples of the chunk, dtype of the pool | `MappedStates`: destinations |
| Mamba2 | any, dtype of the pool | `FlatGrid`: recomputed off the grid of the batch |
| GDN on CuTe DSL | none | not at all |
| Lightning, others | at most the one that SGLang needs itself | not at all |

The conv windows are rows of `track_conv_indices` with all of them. Nothing here has run on a GPU:
`IndexRows`, `KdaRows` and `FlatGrid` run in CPU servers, the others in the interpreter or on
metadata objects without a model.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from spc_sglang.adapter import state_pass
from spc_sglang.adapter.capture_backend import CaptureBackend
from spc_sglang.adapter.capture_indices import (
    FlatGrid,
    IndexRows,
    KdaRows,
    MappedStates,
    PackedStates,
)
from spc_sglang.adapter.capture_state_pass import StatePass

logger = logging.getLogger(__name__)
MAX_KEY_DIM = 128  # of our state pass
TRITON_KERNELS = ("TritonGDNKernel", "TritonKDAKernel")


def choose(model_runner: Any, *, allow_state_pass: bool) -> CaptureBackend | None:
    """The way to capture with this server's kernels, None if there is none; one line in the log.

    `allow_state_pass` lets our own kernel take part in the forward. It has not run on a GPU
    yet, so a server has to ask for it.
    """
    backend = getattr(model_runner.attn_backend, "linear_attn_backend", None)
    kind, kernel = type(backend).__name__, _prefill_kernel(backend)
    pool = model_runner.req_to_token_pool.mamba_pool.mamba_cache.temporal
    rows = {"GDNAttnBackend": IndexRows, "KDAAttnBackend": KdaRows}.get(kind)
    if rows is not None and torch.device(model_runner.device).type == "cpu":
        return _chosen(rows(backend), "CPU kernels", pool)
    _warn_of_graphs(backend)
    triton = rows is not None and kernel in TRITON_KERNELS
    if triton and not allow_state_pass:
        activations = model_runner.dtype
        if rows is not None and torch.promote_types(activations, pool.dtype) == activations:
            return _chosen(rows(backend), kernel, pool)
        return _none(
            f"{kernel} rounds its states to {activations}, the pool holds {pool.dtype}; "
            "--spc-state-pass on stores them as computed, with a kernel not yet run on a GPU"
        )
    if triton:
        missing = _state_pass_lacks(pool)
        if missing is not None:
            return _none(f"our state pass cannot run: {missing}")
        return _chosen(StatePass(backend), kernel, pool)
    if kernel == "FlashInferGDNKernel":
        return _chosen(PackedStates(backend), kernel, pool)
    if kernel == "FlashInferKDAPrefillKernel":
        return _chosen(MappedStates(backend), kernel, pool)
    if kind == "Mamba2AttnBackend":
        return _chosen(FlatGrid(backend), "Mamba2", pool)
    return _none(f"{kernel or kind} gives no states inside a forward")


def _state_pass_lacks(pool: Tensor) -> str | None:
    """What is missing for our state pass with a pool [L, S, HV, V, K], None if nothing is."""
    if pool.shape[-1] > MAX_KEY_DIM:
        return f"key dimension {pool.shape[-1]} is above {MAX_KEY_DIM}"
    if not pool[0].is_contiguous():
        # SGLang then prefills in a copy, whose rows are not the pool's
        return f"the layers of the pool are not contiguous, strides {pool.stride()}"
    return state_pass.can_run()


def _prefill_kernel(backend: Any) -> str:
    dispatcher = getattr(backend, "kernel_dispatcher", None)
    return "" if dispatcher is None else type(dispatcher.extend_kernel).__name__


def _warn_of_graphs(backend: Any) -> None:
    """KDA's graph of a whole prefill has a table of one capture a sequence."""
    in_graph = getattr(backend, "supports_prefill_graph_extend", None)
    if in_graph is not None and in_graph():
        logger.warning(
            "spc-sglang stores nothing of its own in prefills that run as one CUDA graph; "
            "SGLANG_DISABLE_KDA_PREFILL_GRAPH_EXTEND=1 keeps KDA out of it."
        )


def _chosen(chosen: CaptureBackend, kernel: str, pool: Tensor) -> CaptureBackend:
    bits = "the bits of an uncut run"
    if not chosen.exact:
        bits += " where both ran alone in their batches, else the same up to rounding"
    if pool.dtype != torch.float32 and chosen.exact:
        bits = "the bits of a run whose chunk ended there, since the pool rounds"
    name, dtype = type(chosen).__name__, str(pool.dtype).removeprefix("torch.")
    sentence = "spc-sglang captures by %s (%s, pool in %s); resuming gives %s."
    logger.info(sentence, name, kernel, dtype, bits)
    return chosen


def _none(reason: str) -> None:
    logger.warning("spc-sglang captures no checkpoints of its own: %s.", reason)
