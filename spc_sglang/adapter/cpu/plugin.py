"""SGLang general plugin `spc_cpu`: hybrid models on a plain CPU, SGLang unmodified.

Gated delta, Mamba2 and Kimi Delta Attention layers beside attention.

Inert unless SGLANG_USE_CPU_ENGINE=1, and where a real `sgl_kernel` is installed. Everything it
changes in SGLang is one row of `replacements()`.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from typing import TYPE_CHECKING

from spc_sglang.adapter.cpu import stubs

if TYPE_CHECKING:
    from torch import Tensor

SUPPORTED_SGLANG = "0.5.23"


class ProviderError(RuntimeError):
    """SGLang is not the version this provider was written for."""


class How(Enum):
    """How a target is replaced: a function through SGLang's HookRegistry, or a plain value.

    ADD is a plain value under a name that SGLang's module uses but does not define on a CPU.
    """

    HOOK = "hook"
    ASSIGN = "assign"
    ADD = "add"


@dataclass(frozen=True)
class Replacement:
    """One change to SGLang or torch: what, by what, and why."""

    target: str
    value: object
    reason: str
    how: How = How.HOOK


def activate() -> None:
    """Entry point: put the CPU provider in place, or stop the process with one clear sentence."""
    if not stubs.is_enabled():
        return
    stubs.install()
    # imports torch, so not before the test above
    from spc_sglang.adapter.cpu import stand_in

    if not stand_in.is_stand_in():
        return
    try:
        apply(replacements())
    except ProviderError as error:
        # SGLang logs what a plugin raises and goes on; only SystemExit passes through
        raise SystemExit(f"spc-sglang: {error}") from error


def replacements() -> tuple[Replacement, ...]:
    """Every change the provider makes."""
    import torch

    rows = [
        Replacement(
            "sglang.kernels.ops.attention.fla.layernorm_gated._use_cpu",
            True,
            "RMSNormGated calls Triton unless AMX kernels are found",
            How.ASSIGN,
        ),
        Replacement(
            "sglang.kernels.ops.attention.fla.fused_norm_gate._use_cpu",
            True,
            "Qwen3-Next's gated norm calls Triton unless AMX kernels are found",
            How.ASSIGN,
        ),
        Replacement(
            "sglang.srt.arg_groups.mamba_hook._platform_supports_mamba_cache_extra_buffer",
            supports_extra_buffer,
            "the extra_buffer strategies refuse a CPU",
        ),
        Replacement(
            "sglang.kernels.ops.mamba.mamba_state_scatter_triton.track_mamba_states_all_layers",
            track_states_of_all_layers,
            "copying states to their tracking slots is Triton",
        ),
        Replacement(
            "sglang.kernels.ops.mamba.mamba_state_scatter_triton.track_mamba_states_if_needed",
            track_states_of_one_layer,
            "copying states to their tracking slots is Triton",
        ),
        Replacement(
            "sglang.kernels.ops.elementwise.elementwise._launch_fused_gate_sigmoid_mul",
            launch_shared_expert_gate,
            "the gate of Qwen3-Next's shared expert is Triton",
        ),
        Replacement(
            "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
            "._run_sdpa_forward_extend",
            run_extend_attention,
            "torch_native pads new queries to the whole sequence: a hit would save nothing",
        ),
    ]
    rows += [*_mamba2_replacements(), *_kda_replacements()]
    if os.environ.get(stubs.FORK_VARIABLE) == "1":
        rows.append(
            Replacement(
                "multiprocessing.set_start_method",
                start_by_fork(multiprocessing.set_start_method),
                "a spawned process imports everything once more",
                How.ASSIGN,
            )
        )
    if not torch.accelerator.is_available():
        rows.append(
            Replacement(
                "torch.Tensor.pin_memory",
                keep_unpinned,
                "the scheduler pins memory whether or not there is a device to copy to",
                How.ASSIGN,
            )
        )
    return tuple(rows)


def _mamba2_replacements() -> list[Replacement]:
    """Falcon-H1, Granite-4 hybrid, Nemotron-H."""
    from spc_sglang.adapter.cpu import ops, ops_mamba2

    module = "sglang.srt.layers.attention.mamba.mamba"
    rows = [
        Replacement(
            f"{module}.mamba_chunk_scan_combined",
            ops_mamba2.mamba_chunk_scan_combined_cpu,
            "Mamba2's prefill is Triton",
            How.ASSIGN,
        ),
        Replacement(
            f"{module}.selective_state_update",
            ops_mamba2.selective_state_update_cpu,
            "Mamba2's decode step is Triton",
            How.ASSIGN,
        ),
    ]
    for name, function in (
        ("causal_conv1d_fn", ops.causal_conv1d_fn_cpu),
        ("causal_conv1d_update", ops.causal_conv1d_update_cpu),
    ):
        for target in (name, f"{name}_triton"):  # the model chooses one of the two
            reason = "Mamba2's convolution has no CPU branch"
            rows.append(Replacement(f"{module}.{target}", function, reason, How.ADD))
    return rows


def _kda_replacements() -> list[Replacement]:
    """Kimi-Linear."""
    from spc_sglang.adapter.cpu import ops, ops_kda

    linear = "sglang.srt.layers.attention.linear"
    return [
        Replacement(
            f"{linear}.kda_backend.causal_conv1d_fn",
            ops.causal_conv1d_fn_cpu,
            "KDA's prefill convolution is Triton on every platform",
            How.ASSIGN,
        ),
        Replacement(
            f"{linear}.kernels.kda_triton.chunk_kda",
            ops_kda.chunk_kda_cpu,
            "KDA's prefill has no CPU branch",
            How.ADD,
        ),
        Replacement(
            f"{linear}.kernels.kda_triton.fused_sigmoid_gating_delta_rule_update",
            ops_kda.kda_decode_cpu,
            "KDA's decode step has no CPU branch",
            How.ADD,
        ),
        Replacement(
            "sglang.kernels.ops.attention.fla.fused_norm_gate.FusedRMSNormGated.forward",
            ops_kda.rms_norm_gated_forward,
            "the CPU branch has no sigmoid gate",
        ),
        Replacement(
            "sglang.srt.models.deepseek_common.attention_backend_handler"
            ".AttentionBackendRegistry.get_handler",
            always_absorb,
            "torch_native has no entry and would get a prefill without the latent cache",
        ),
    ]


def apply(rows: tuple[Replacement, ...]) -> None:
    """Apply every replacement and check each; ProviderError names the first that did not take."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for row in rows:
        _resolve(row)
        if row.how is How.HOOK:
            assert callable(row.value)
            HookRegistry.register(row.target, row.value, HookType.REPLACE)
        else:
            owner, _, name = row.target.rpartition(".")
            setattr(pkgutil.resolve_name(owner), name, row.value)
    # the registry only logs a hook that it could not apply, hence the check after it
    HookRegistry.apply_hooks()
    for row in rows:
        found = _resolve(row)
        if row.how is How.HOOK and not hasattr(found, "__wrapped__"):
            raise ProviderError(f"SGLang did not apply the hook on {row.target} ({row.reason}).")


def _resolve(row: Replacement) -> object:
    """What the target is now; the module that will hold it, where the row adds it."""
    target = row.target.rpartition(".")[0] if row.how is How.ADD else row.target
    try:
        return pkgutil.resolve_name(target)
    except (ImportError, AttributeError) as error:
        raise ProviderError(
            f"sglang {version('sglang')} has no {row.target} (needed because {row.reason}); the "
            f"CPU provider supports sglang {SUPPORTED_SGLANG}."
        ) from error


def supports_extra_buffer() -> bool:
    """The state copies that extra_buffer needs are provided below."""
    return True


def always_absorb(registry: type, backend_name: str) -> Callable[[object, object], object]:
    """Latent attention computes on its latent cache in prefill as well."""
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import (
        AttnForwardMethod,
    )

    return lambda attention, forward_batch: AttnForwardMethod.MLA


def start_by_fork(set_start_method: Callable[..., None]) -> Callable[..., None]:
    """The same function for whom every method is "fork"."""
    return lambda method, force=False: set_start_method("fork", force)


def keep_unpinned(tensor: Tensor, *arguments: object, **options: object) -> Tensor:
    """`tensor` itself: there is no device to pin it for."""
    return tensor


def track_states_of_all_layers(
    conv_states_pool: Tensor,
    ssm_states_pool: Tensor,
    cache_indices: Tensor,
    mamba_track_mask: Tensor,
    mamba_track_indices: Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copy both states [L, slots, ..] of each masked row from its slot to its tracking slot."""
    rows = mamba_track_mask[:batch_size].nonzero()[:, 0]
    if rows.numel() == 0:
        return
    source, destination = cache_indices[rows].long(), mamba_track_indices[rows].long()
    if check_freed_slots:
        kept = (source >= 0) & (destination >= 0)
        source, destination = source[kept], destination[kept]
    conv_states_pool[:, destination] = conv_states_pool[:, source]
    ssm_states_pool[:, destination] = ssm_states_pool[:, source]


def track_states_of_one_layer(
    conv_states: Tensor,
    ssm_states: Tensor,
    cache_indices: Tensor,
    mamba_track_mask: Tensor,
    mamba_track_indices: Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """The same for one layer's pools [slots, ..]."""
    track_states_of_all_layers(
        conv_states[None],
        ssm_states[None],
        cache_indices,
        mamba_track_mask,
        mamba_track_indices,
        batch_size,
        check_freed_slots,
    )


def launch_shared_expert_gate(
    hidden_states: Tensor,
    gate_weight: Tensor,
    shared_output: Tensor,
    output: Tensor,
    *,
    do_add: bool,
) -> None:
    """Write (or add) the gated output of the shared expert into `output` [T, D]."""
    from spc_sglang.kernels.gated_norm.naive import shared_expert_gate

    gated = shared_expert_gate(hidden_states, gate_weight, shared_output)
    output.copy_(output.float() + gated if do_add else gated)


def run_extend_attention(
    backend: object,
    query: Tensor,
    output: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_prefix_lens: Tensor,
    extend_seq_lens: Tensor,
    encoder_lens: Tensor | None = None,
    scaling: float | None = None,
    enable_gqa: bool = False,
    causal: bool = False,
    is_cross_attn: bool = False,
    sliding_window_size: int | None = None,
) -> Tensor:
    """Attention of each sequence's new tokens: query [T, H, D] into output [T, H, V]."""
    from spc_sglang.kernels.extend_attention import naive

    windowed = sliding_window_size is not None and sliding_window_size > -1
    if encoder_lens is not None or is_cross_attn or windowed or not causal:
        raise NotImplementedError(
            "the CPU provider's attention is causal, without encoder or sliding window"
        )
    start = 0
    lengths = zip(extend_seq_lens.tolist(), seq_lens.tolist(), strict=True)
    for row, (num_new, num_total) in enumerate(lengths):
        slots = req_to_token[req_pool_indices[row], :num_total]
        rows = slice(start, start + num_new)
        output[rows] = naive.extend(query[rows], k_cache[slots], v_cache[slots], scale=scaling)
        start += num_new
    return output
