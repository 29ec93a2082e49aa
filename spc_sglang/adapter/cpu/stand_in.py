"""The stand-in for `sgl_kernel`: which functions of ops.py it offers, and under which names.

SGLang looks kernels up in two ways: functions of the module tree `sgl_kernel`, and operators
under `torch.ops.sgl_kernel`. `convert_weight_packed` is left out on purpose: without it SGLang
sees no AMX kernels and takes its own forward_native code everywhere else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import torch

from spc_sglang.adapter.cpu import ops

VERSION = "0.0+spc.cpu"
OPERATORS: tuple[tuple[str, Callable[..., object]], ...] = (
    (
        "fused_rmsnorm_gated_cpu(Tensor input, Tensor weight, Tensor gate, float eps) -> Tensor",
        ops.fused_rmsnorm_gated_cpu,
    ),
    (
        "fused_qk_gemma_rmsnorm_cpu(Tensor q, Tensor k, Tensor q_weight, Tensor k_weight, "
        "float eps, int head_dim) -> (Tensor, Tensor)",
        ops.fused_qk_gemma_rmsnorm_cpu,
    ),
    (
        "fused_qk_gemma_rmsnorm_with_gate_cpu(Tensor q_gate, Tensor k, Tensor q_weight, "
        "Tensor k_weight, float eps, int head_dim, int num_head) -> (Tensor, Tensor, Tensor)",
        ops.fused_qk_gemma_rmsnorm_with_gate_cpu,
    ),
    ("fused_sigmoid_mul_cpu(Tensor(a!) input, Tensor gate) -> ()", ops.fused_sigmoid_mul_cpu),
    (
        "fused_qkvzba_split_reshape_cat_contiguous_cpu(Tensor mixed_qkvz, Tensor mixed_ba, "
        "int num_heads_qk, int num_heads_v, int head_qk, int head_v) "
        "-> (Tensor, Tensor, Tensor, Tensor)",
        ops.fused_qkvzba_split_reshape_cat_contiguous_cpu,
    ),
    (
        "fused_gdn_gating_cpu(Tensor A_log, Tensor a, Tensor b, Tensor dt_bias) "
        "-> (Tensor, Tensor)",
        ops.fused_gdn_gating_cpu,
    ),
    (
        "fused_sigmoid_gating_delta_rule_update_cpu(Tensor A_log, Tensor dt_bias, Tensor q, "
        "Tensor k, Tensor v, Tensor a, Tensor b, Tensor(a!) initial_state_source, "
        "Tensor initial_state_indices, Tensor cu_seqlens, bool use_qk_l2norm_in_kernel, "
        "float softplus_beta=1.0, float softplus_threshold=20.0) -> Tensor",
        ops.fused_sigmoid_gating_delta_rule_update_cpu,
    ),
)
FUNCTIONS: dict[str, tuple[Callable[..., object], ...]] = {
    "sgl_kernel": (ops.assign_req_to_token_pool_cpu,),
    "sgl_kernel.mamba": (
        ops.causal_conv1d_fn_cpu,
        ops.causal_conv1d_update_cpu,
        ops.chunk_gated_delta_rule_cpu,
    ),
    "sgl_kernel.speculative": (),
}

_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def register_operators() -> None:
    """Define the operators under torch.ops.sgl_kernel, once a process."""
    for schema, function in OPERATORS:
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.sgl_kernel, name):
            _library.define(schema)
            _library.impl(name, function, "CPU")


def build_module(name: str) -> ModuleType:
    """The stand-in for the module `name`, one of FUNCTIONS; registers the operators too."""
    register_operators()
    module = ModuleType(name)
    module.__version__ = VERSION
    for function in FUNCTIONS[name]:
        setattr(module, function.__name__, function)
    module.__getattr__ = lambda attribute: _missing(f"{name}.{attribute}")
    return module


def _missing(name: str) -> Callable[..., object]:
    """What an import of a function that is not provided gets: it fails when called, not before."""
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)

    def call(*arguments: object, **options: object) -> object:
        raise NotImplementedError(
            f"{name} is not provided on a CPU: use a GPU, turn the feature that calls it off, or "
            f"add it to {ops.__name__}"
        )

    return call


def is_stand_in() -> bool:
    """Whether `sgl_kernel` is this module's stand-in and not an installed package."""
    return getattr(importlib.import_module("sgl_kernel"), "__version__", None) == VERSION
