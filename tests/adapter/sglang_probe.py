"""Runs inside a process of its own with SGLang importable; prints one JSON object of facts."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any


def main() -> None:
    sys.argv = ["launch_server", "--model-path", "m"]
    from sglang.srt.plugins import load_plugins

    load_plugins()
    package = "spc_sglang.adapter."
    ours = sorted(name for name in sys.modules if name.startswith(package))
    facts: dict[str, Any] = {
        "imported": [name for name in ours if not name.startswith(package + "cpu")],
        "inert": hook_state(),
    }

    sys.argv = ["launch_server", "--radix-cache-backend", "spc"]
    from spc_sglang.adapter import hooks

    hooks.install(hooks.COMMAND_LINE)
    facts["after_command_line"] = hook_state()
    facts["command_line"] = {name: outcome(*argv) for name, argv in COMMAND_LINES.items()}
    facts["engine"] = engine_outcomes()
    facts["rules"] = rule_outcomes()
    facts["layers"] = layer_outcomes()
    facts["hooks"] = hook_outcomes()
    hooks.install(hooks.SCHEDULER)
    hooks.install(hooks.SCHEDULER)  # a second call must not wrap twice
    hooks.install(hooks.FORWARD.values())
    hooks.install(hooks.CHUNK_END)
    facts["after_scheduler"] = hook_state()
    print(json.dumps(facts))


def hook_state() -> dict[str, bool]:
    """Which of our hooks are in place, looking only at modules that are loaded already."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    from spc_sglang.adapter import hooks

    registered = [
        function.__module__ for rows in HookRegistry._hooks.values() for _, function, _ in rows
    ]
    ours = [name for name in registered if not name.startswith("spc_sglang.adapter.cpu")]
    return {
        "registered": bool([name for name in ours if name.startswith("spc_sglang")]),
        **{
            hook.target: hook_module(hook.target) in sys.modules and hooks.is_installed(hook)
            for hook in (
                *hooks.COMMAND_LINE,
                *hooks.SCHEDULER,
                *hooks.FORWARD.values(),
                *hooks.CHUNK_END,
            )
        },
    }


def hook_module(target: str) -> str:
    return target.rsplit(".", 2)[0]


COMMAND_LINES = {
    "good": ("--radix-cache-backend", "spc", "--spc-placement", "block", "--spc-block-tokens=192"),
    "bad_value": ("--radix-cache-backend", "spc", "--spc-block-tokens", "0"),
    "without_backend": ("--spc-placement", "none"),
    "stock": (),
    "speculative": ("--radix-cache-backend", "spc", "--speculative-algorithm", "NGRAM"),
}


def outcome(*argv: str) -> dict[str, Any]:
    """Parse a command line the way the launcher does."""
    from sglang.srt.server_args import prepare_server_args

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            record = prepare_server_args(["--model-path", "m", *argv])
    except SystemExit as error:
        return {"stopped": str(error)}
    copied = pickle.loads(pickle.dumps(record))
    return {"options": getattr(copied, "_spc_options", None)}


def engine_outcomes() -> dict[str, Any]:
    from spc_sglang.adapter.command_line import make_server_args

    def attempt(**keywords: Any) -> Any:
        try:
            return getattr(make_server_args(model_path="m", **keywords), "_spc_options", None)
        except (ValueError, TypeError) as error:
            return str(error)

    return {
        "good": attempt(
            radix_cache_backend="spc", spc_placement="block", spc_block_tokens=320, spc_state=None
        ),
        "unknown": attempt(radix_cache_backend="spc", spc_blocks=1),
        "without_backend": attempt(spc_block_tokens=320),
        "stock": attempt(),
    }


def rule_outcomes() -> list[str]:
    """One refusal per rule, made with a record on which only that rule's flag is set."""
    from sglang.srt.server_args import ServerArgs

    from spc_sglang.adapter import compatibility

    flags: dict[str, Any] = {
        "disable_radix_cache": True,
        "speculative_algorithm": "NGRAM",
        "enable_hierarchical_cache": True,
        "disaggregation_mode": "prefill",
        "pp_size": 2,
        "dcp_size": 2,
        "enable_lmcache": True,
        "enable_flexkv": True,
        "enable_unified_cache_external_linker": True,
        "enable_streaming_session": True,
        "enable_session_radix_cache": True,
        "enable_pdmux": True,
        "attn_cp_size": 2,
        "enable_linear_replayssm": True,
        "enable_unified_memory": True,
        "enable_page_major_kv_layout": True,
        "dllm_algorithm": "LowConfidence",
        "enable_two_batch_overlap": True,
        "enable_mis": True,
    }
    compatibility.before_load(ServerArgs(model_path="m"))
    assert len(flags) == len(compatibility._RULES)
    refusals = []
    for name, value in flags.items():
        try:
            compatibility.before_load(ServerArgs(model_path="m", **{name: value}))
            refusals.append(f"{name}: accepted")
        except compatibility.Unsupported as error:
            refusals.append(f"{name}: {error}")
    return refusals


def layer_outcomes() -> dict[str, str]:
    """What is said of each kind of recurrent layer, by the class that SGLang runs it with."""
    from sglang.srt.configs import FalconMambaConfig

    from spc_sglang.adapter import compatibility

    def attempt(kind: str, config: Any) -> str:
        runner = SimpleNamespace(
            attn_backend=SimpleNamespace(linear_attn_backend=type(kind, (), {})())
        )
        context = SimpleNamespace(
            disable_radix_cache=False,
            is_hybrid_ssm=True,
            is_hybrid_swa=False,
            model_config=SimpleNamespace(hf_config=config),
            params=SimpleNamespace(req_to_token_pool=None),
            tp_worker=SimpleNamespace(model_runner=runner),
        )
        try:
            compatibility.after_load(context)
        except compatibility.Unsupported as error:
            return str(error)
        return "accepted"

    plain = SimpleNamespace(architectures=["SomeForCausalLM"])
    kinds = (*hooks_by_layer(), "LightningAttentionBackend", "ShortConvAttnBackend")
    mamba1 = FalconMambaConfig(architectures=["FalconMambaForCausalLM"])
    return {
        **{kind: attempt(kind, plain) for kind in kinds},
        "Mamba1": attempt("Mamba2AttnBackend", mamba1),
    }


def hooks_by_layer() -> tuple[str, ...]:
    from spc_sglang.adapter import hooks

    return tuple(hooks.FORWARD)


def hook_outcomes() -> dict[str, str]:
    """What `install` says of a target that is missing and of one that changed."""
    from spc_sglang.adapter import hooks

    def attempt(hook: hooks.Hook) -> str:
        try:
            hooks.install([hook])
            return "installed"
        except ValueError as error:
            return str(error)

    sound = hooks.SCHEDULER[0]
    return {
        "missing": attempt(replace(sound, target=sound.target + "_gone")),
        "missing_module": attempt(replace(sound, target="sglang.srt.gone.Thing.method")),
        "changed": attempt(replace(sound, parameters=("self", "other"))),
    }


if __name__ == "__main__":
    main()
