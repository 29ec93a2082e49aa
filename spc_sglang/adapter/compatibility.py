"""What this package was tested with, and clear refusals of everything else.

Each check raises `Unsupported`, one sentence with what, why and what to do. `before_load`
needs the parsed flags only and runs before the model is loaded; `after_load` sees the built
pools and backends in the scheduler process, before the server accepts requests.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

TESTED_SGLANG = ("0.5.23",)
_DROP = "drop --radix-cache-backend spc"
# SGLang's classes; Lightning's gives no state inside a forward, so there only the eviction is ours
_RECURRENT_LAYERS = (
    "GDNAttnBackend",
    "KDAAttnBackend",
    "Mamba2AttnBackend",
    "LightningAttentionBackend",
)


class Unsupported(ValueError):
    """A combination that the backend refuses to start with."""


class _Rule(NamedTuple):
    applies: Callable[[Any], bool]
    sentence: str


def _set(name: str) -> Callable[[Any], bool]:
    return lambda args: bool(getattr(args, name))


_RULES: tuple[_Rule, ...] = (
    _Rule(
        _set("disable_radix_cache"),
        "--disable-radix-cache leaves nothing to checkpoint: drop it or " + _DROP,
    ),
    _Rule(
        _set("speculative_algorithm"),
        "speculative decoding is not tested with captured checkpoints: drop "
        "--speculative-algorithm or " + _DROP,
    ),
    _Rule(
        _set("enable_hierarchical_cache"),
        "the host tier does not know our checkpoints yet: drop --enable-hierarchical-cache or "
        + _DROP,
    ),
    _Rule(
        lambda args: args.disaggregation_mode not in (None, "null"),
        "prefill/decode disaggregation moves states outside the tree: drop "
        "--disaggregation-mode or " + _DROP,
    ),
    _Rule(
        lambda args: (args.pp_size or 1) > 1,
        "pipeline parallelism is not tested with captured checkpoints: use --pp-size 1 or " + _DROP,
    ),
    _Rule(
        lambda args: (args.dcp_size or 1) > 1,
        "decode context parallelism widens the pages beyond our grid: use --dcp-size 1 or " + _DROP,
    ),
    _Rule(
        _set("enable_lmcache"),
        "LMCache brings its own tree: drop --enable-lmcache or " + _DROP,
    ),
    _Rule(
        _set("enable_flexkv"),
        "FlexKV brings its own tree: drop --enable-flexkv or " + _DROP,
    ),
    _Rule(
        _set("enable_unified_cache_external_linker"),
        "an external cache linker moves states outside the tree: drop it or " + _DROP,
    ),
    _Rule(
        _set("enable_streaming_session"),
        "streaming sessions keep their state outside the tree: drop --enable-streaming-session or "
        + _DROP,
    ),
    _Rule(
        _set("enable_session_radix_cache"),
        "our choice of victims does not know session references: drop "
        "--enable-session-radix-cache or " + _DROP,
    ),
    _Rule(
        _set("enable_pdmux"),
        "PD multiplexing is not tested with captured checkpoints: drop --enable-pdmux or " + _DROP,
    ),
    _Rule(
        lambda args: (args.attn_cp_size or 1) > 1,
        "context-parallel attention is not tested with captured checkpoints: use "
        "--attn-cp-size 1 or " + _DROP,
    ),
    _Rule(
        _set("enable_linear_replayssm"),
        "ReplaySSM keeps the stored state behind the live one: drop --enable-linear-replayssm or "
        + _DROP,
    ),
    _Rule(
        _set("enable_unified_memory"),
        "the unified memory pool is not tested with captured checkpoints: drop "
        "--enable-unified-memory or " + _DROP,
    ),
    _Rule(
        _set("enable_page_major_kv_layout"),
        "the page-major layout is not tested with captured checkpoints: drop "
        "--enable-page-major-kv-layout or " + _DROP,
    ),
    _Rule(
        _set("dllm_algorithm"),
        "diffusion decoding rewrites its prefix: drop --dllm-algorithm or " + _DROP,
    ),
    _Rule(
        _set("enable_two_batch_overlap"),
        "two-batch overlap splits the batch that a capture plan names: drop "
        "--enable-two-batch-overlap or " + _DROP,
    ),
    _Rule(
        _set("enable_mis"),
        "multi-item scoring prefills without a resumable state: drop --enable-mis or " + _DROP,
    ),
)


def check_version() -> None:
    """Refuse an SGLang release that the hooks were not tested with."""
    version = metadata.version("sglang")
    if version not in TESTED_SGLANG:
        raise Unsupported(
            f"sglang {version} is not a tested version, since our hooks follow its internals: "
            f"install sglang=={TESTED_SGLANG[-1]} or {_DROP}."
        )


def check_state_file(server_args: Any, path: str) -> None:
    """Refuse a file that cannot be written, and one file for several independent schedulers."""
    if path and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
        raise Unsupported(f"--spc-state {path} is not a file in an existing folder: name one.")
    if path and (server_args.dp_size or 1) > 1:
        raise Unsupported(
            "--spc-state is one file, and each data-parallel rank learns for itself: drop "
            "--spc-state or use --dp-size 1."
        )


def before_load(server_args: Any) -> None:
    """Refuse unsupported flags; needs no model."""
    check_version()
    for rule in _RULES:
        if rule.applies(server_args):
            raise Unsupported(rule.sentence + ".")


def after_load(context: Any) -> None:
    """Refuse a model or pool that cannot be captured.

    `context` is SGLang's `TreeCacheBuildContext`.
    """
    if context.disable_radix_cache:
        raise Unsupported(f"the radix cache is disabled, so there is nothing to keep: {_DROP}.")
    if not context.is_hybrid_ssm:
        raise Unsupported(
            f"this model has no recurrent layers, so all it matches is reusable already: {_DROP}."
        )
    if context.is_hybrid_swa:
        raise Unsupported(
            f"models that mix recurrent and sliding-window layers are not supported yet: {_DROP}."
        )
    _check_layers(context)
    if getattr(context.params.req_to_token_pool, "mamba_ckpt_pool", None) is not None:
        raise Unsupported(
            f"int8 checkpoints round the state: drop --enable-int8-mamba-checkpoint or {_DROP}."
        )


def _check_layers(context: Any) -> None:
    """Refuse recurrent layers whose forwards or states we do not know."""
    from sglang.srt.configs import FalconMambaConfig, MambaConfig

    config = context.model_config.hf_config
    backend = getattr(context.tp_worker.model_runner.attn_backend, "linear_attn_backend", None)
    known = type(backend).__name__ in _RECURRENT_LAYERS
    if not known or isinstance(config, MambaConfig | FalconMambaConfig):
        raise Unsupported(
            f"{config.architectures[0]} has recurrent layers other than gated delta, Kimi Delta "
            f"Attention, Mamba2 and Lightning: {_DROP}."
        )
