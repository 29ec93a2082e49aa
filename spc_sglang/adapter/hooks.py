"""Every place where we hook into SGLang, in one table, and the code that installs it.

`COMMAND_LINE` hooks serve the launcher and are installed only when the command line mentions
the backend or asks for help. All others are installed by the cache factory, so only in a
scheduler process that was started with the backend. A target that is missing or that takes
other arguments than expected stops the start: SGLang itself would only log it.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from spc_sglang.adapter import capture_hooks, chunk_end, command_line, state_pass
from spc_sglang.adapter.compatibility import TESTED_SGLANG, Unsupported


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook: a dotted target, the arguments it is expected to take, and our function."""

    target: str
    kind: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    purpose: str


COMMAND_LINE: tuple[Hook, ...] = (
    Hook(
        "sglang.srt.server_args.ServerArgs.add_cli_args",
        "after",
        command_line.after_add_cli_args,
        ("parser",),
        "adds our flags to --help and to the parser",
    ),
    Hook(
        "sglang.srt.server_args.ServerArgs.from_cli_args",
        "after",
        command_line.after_from_cli_args,
        ("cls", "args"),
        "validates our flags before the model loads and attaches them to the record",
    ),
)

SCHEDULER: tuple[Hook, ...] = (
    Hook(
        "sglang.srt.managers.schedule_batch.ScheduleBatch.prepare_for_extend",
        "around",
        capture_hooks.around_prepare_for_extend,
        ("self",),
        "plans captures once prefix and extend lengths of a batch are known",
    ),
    Hook(
        "sglang.srt.model_executor.forward_batch_info.ForwardBatch.init_new",
        "after",
        capture_hooks.after_init_new,
        ("cls", "batch", "model_runner", "..."),
        "carries the plan from the scheduler's batch to the forward",
    ),
    Hook(
        "sglang.srt.managers.scheduler.Scheduler._get_new_batch_prefill_raw",
        "around",
        capture_hooks.around_get_new_batch_prefill_raw,
        ("self", "prefill_delayer_single_pass", "running_batch"),
        "lets the followers of a group wait for its leader's checkpoint, and all for slots",
    ),
    Hook(
        "sglang.srt.managers.schedule_policy.SchedulePolicy.calc_priority",
        "after",
        capture_hooks.after_calc_priority,
        ("self", "waiting_queue", "running_batch", "processed_tokens"),
        "keeps the order by longest prefix from starving a request",
    ),
    Hook(
        "sglang.srt.managers.scheduler.Scheduler.init_mamba_truncation_align",
        "after",
        capture_hooks.after_init_mamba_truncation_align,
        ("self",),
        "shows the waiting queue to the eviction, once the scheduler has built both",
    ),
    Hook(
        "sglang.srt.managers.scheduler_components.internal_state"
        ".SchedulerInternalStateController._add_topology",
        "after",
        capture_hooks.after_add_topology,
        ("self", "state"),
        "shows our counters in /server_info",
    ),
)

_LINEAR = "sglang.srt.layers.attention."
# by the class that prepares a forward's recurrent layers; the cache factory installs one
FORWARD: dict[str, Hook] = {
    name: Hook(
        f"{_LINEAR}{module}.{name}.init_forward_metadata",
        "after",
        capture_hooks.after_init_forward_metadata,
        ("self", "forward_batch"),
        "appends one row per capture to the index vectors that every layer already follows",
    )
    for name, module in (
        ("GDNAttnBackend", "linear.gdn_backend"),
        ("KDAAttnBackend", "linear.kda_backend"),
        ("Mamba2AttnBackend", "hybrid_linear_attn_backend"),
    )
}

# installed by the cache factory where the prefill kernel needs it
STATE_PASS: tuple[Hook, ...] = tuple(
    Hook(
        target,
        "around",
        state_pass.around_fwd_h,
        state_pass.PARAMETERS,
        "runs our state pass, which stores several states, where a forward has captures planned",
    )
    for target in state_pass.TARGETS
)

# installed by the cache factory if asked for, where no capture is possible
CHUNK_END: tuple[Hook, ...] = (
    Hook(
        "sglang.srt.managers.schedule_policy.PrefillAdder._select_prefill_admission",
        "around",
        chunk_end.around_select_prefill_admission,
        ("self", "req", "total_tokens", "host_hit_length", "..."),
        "ends the first prefill chunk of a request on a planned depth",
    ),
    Hook(
        "sglang.srt.managers.schedule_policy.PrefillAdder.add_chunked_req",
        "around",
        chunk_end.around_add_chunked_req,
        ("self", "req"),
        "ends further prefill chunks on planned depths",
    ),
)


def install(hooks: Iterable[Hook]) -> None:
    """Check, register and apply hooks; raises `Unsupported` naming the first bad target.

    Idempotent: a hook that is already in place is left alone.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    missing = [hook for hook in hooks if not is_installed(hook)]
    for hook in missing:
        _check_signature(hook)
    for hook in missing:
        HookRegistry.register(hook.target, hook.function, HookType(hook.kind))
    if missing:
        HookRegistry.apply_hooks()
    for hook in missing:
        if not is_installed(hook):
            raise Unsupported(
                f"SGLang did not apply our hook on {hook.target}, which {hook.purpose}; another "
                "plugin may hold it: set SGLANG_PLUGINS=spc or drop --radix-cache-backend spc."
            )


def is_installed(hook: Hook) -> bool:
    """Whether our function is part of the wrapper chain of its target."""
    try:
        wrapper = inspect.unwrap(_resolve(hook.target), stop=lambda fn: _holds(fn, hook.function))
    except (AttributeError, ImportError):
        return False
    return _holds(wrapper, hook.function)


def _holds(wrapper: Any, function: Callable[..., Any]) -> bool:
    cells = getattr(wrapper, "__closure__", None) or ()
    return any(cell.cell_contents is function for cell in cells)


def _resolve(target: str) -> Any:
    """The function behind a dotted name, without binding a class or static method."""
    owner_name, name = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner_name)
    raw = vars(owner).get(name) if isinstance(owner, type) else None
    if raw is None:
        raw = getattr(owner, name)
    return raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw


def _check_signature(hook: Hook) -> None:
    remedy = f"install sglang=={TESTED_SGLANG[-1]} or drop --radix-cache-backend spc."
    try:
        function = _resolve(hook.target)
    except (AttributeError, ImportError) as error:
        raise Unsupported(
            f"this SGLang has no {hook.target} ({error}), which we need since it {hook.purpose}: "
            f"{remedy}"
        ) from None
    names = tuple(inspect.signature(function).parameters)
    expected = hook.parameters
    if expected[-1] == "...":
        expected = expected[:-1]
        names = names[: len(expected)]
    if names != expected:
        raise Unsupported(
            f"{hook.target} takes {names} where we expect {expected}, and it {hook.purpose}: "
            f"{remedy}"
        )
