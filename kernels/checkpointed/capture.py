"""Takes checkpoints inside any call of flash-linear-attention 0.6 that runs its chunked prefill.

The library computes the states between chunks in one function per recurrence, called by name
from a few modules. `capturing` makes these names run our state pass, which stores fp32 states on
its way; with no capture active they run the library's own code. So gates, norms and activations
that the library fuses stay its business, and gradients are left alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from spc_sglang.kernels.gated_delta.plan import CHUNK_TOKENS, SnapshotPlan, plan_snapshots
from spc_sglang.kernels.gated_delta.triton import state_pass

SUPPORTED_FLA = "0.6."
# where the library calls its state functions, as (module, function)
DELTA_RULE = (
    ("fla.ops.gated_delta_rule.chunk", "chunk_gated_delta_rule_fwd_h"),
    ("fla.ops.kda.chunk_fwd", "chunk_gated_delta_rule_fwd_h"),
)
NO_DELTA_RULE = (("fla.ops.simple_gla.chunk", "chunk_fwd_h"),)


@dataclass(slots=True)
class StateCapture:
    """A plan and what the calls under it stored.

    states: per call, in order, fp32 [P, HV, K, V] (V, K where the caller asked for it).
    """

    plan: SnapshotPlan
    lengths: list[int]
    states: list[Tensor] = field(default_factory=list)
    on_state: Callable[[Tensor], None] | None = None

    def store(self, states: Tensor) -> None:
        self.states.append(states)
        if self.on_state is not None:
            self.on_state(states)


_ACTIVE: ContextVar[StateCapture | None] = ContextVar("spc_state_capture", default=None)


@contextmanager
def capturing(
    lengths: Sequence[int],
    positions: Sequence[Sequence[int]],
    device: torch.device,
    prefixes: Sequence[int] | None = None,
) -> Iterator[StateCapture]:
    """Every chunked prefill within the block stores the states at `positions`.

    lengths [N]: new tokens of each sequence; positions[n]: depths of sequence n, counted with its
    prefix. ValueError for a depth off the chunk grid, naming its neighbours.
    """
    install()
    rows = iter(range(sum(len(p) for p in positions)))
    wanted = [{depth: next(rows) for depth in depths} for depths in positions]
    plan = plan_snapshots(lengths, prefixes, wanted, device)
    if plan.num_snapshots != sum(len(p) for p in positions):
        raise ValueError(f"a position is given twice: {positions}")
    capture = StateCapture(plan, list(lengths))
    token = _ACTIVE.set(capture)
    try:
        yield capture
    finally:
        _ACTIVE.reset(token)


def install() -> None:
    """Put our functions behind the library's names, once; RuntimeError on an unknown version."""
    version = importlib.import_module("fla").__version__
    if not version.startswith(SUPPORTED_FLA):
        raise RuntimeError(f"made for flash-linear-attention {SUPPORTED_FLA}x, found {version}")
    for sites, replace in ((DELTA_RULE, _with_delta_rule), (NO_DELTA_RULE, _without_delta_rule)):
        for module_name, name in sites:
            module = importlib.import_module(module_name)
            original = getattr(module, name)
            if not hasattr(original, "_spc_original"):
                setattr(module, name, _switch(original, replace))


def _switch(
    original: Callable[..., Any], replacement: Callable[[StateCapture, dict[str, Any]], Any]
) -> Callable[..., Any]:
    """The original without a capture, else the replacement with the bound arguments."""
    signature = inspect.signature(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        capture = _ACTIVE.get()
        if capture is None:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return replacement(capture, bound.arguments)

    call._spc_original = original  # type: ignore[attr-defined]
    return call


def _with_delta_rule(capture: StateCapture, a: dict[str, Any]) -> tuple[Tensor, Tensor, Any]:
    """`chunk_gated_delta_rule_fwd_h`: states, new values, final state."""
    assert a["save_new_value"], "the output needs the new values"
    gate = a["g"] if a["gk"] is None else a["gk"]
    return _run(capture, a, a["u"], a["w"], gate, a["initial_state"])


def _without_delta_rule(capture: StateCapture, a: dict[str, Any]) -> tuple[Tensor, Any]:
    """`chunk_fwd_h` with one gate a head: states, final state."""
    unsupported = [n for n in ("g_gamma", "gk", "gv", "split_size") if a[n] is not None]
    if unsupported or a["states_in_fp32"]:
        raise ValueError(f"no checkpoints with {unsupported or 'states_in_fp32'}")
    states, _, final = _run(capture, a, a["v"], None, a["g"], a["h0"])
    return states, final


def _run(
    capture: StateCapture,
    a: dict[str, Any],
    update: Tensor,
    reader: Tensor | None,
    gate: Tensor | None,
    initial: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Our state pass on [B, T, ..] tensors; B sequences of T tokens lie one after the other."""
    key = a["k"]
    batch, plan = key.shape[0], capture.plan
    if a["chunk_size"] != CHUNK_TOKENS:
        raise ValueError(f"chunk size {a['chunk_size']} is not {CHUNK_TOKENS}")
    if sum(capture.lengths) != key.shape[0] * key.shape[1]:
        raise ValueError(f"planned for lengths {capture.lengths}, called with {tuple(key.shape)}")
    heads, dims = update.shape[2], (key.shape[-1], update.shape[-1])
    row = (heads, *(reversed(dims) if a["state_v_first"] else dims))
    pool = key.new_zeros(plan.num_sequences, *row, dtype=torch.float32)
    if initial is not None:
        pool.copy_(initial)
    checkpoints = torch.zeros(plan.num_snapshots, *row, dtype=torch.float32, device=key.device)
    slots = torch.arange(plan.num_sequences, dtype=torch.int32, device=key.device)
    flat = [
        None if x is None else x.reshape(1, -1, *x.shape[2:]).contiguous()
        for x in (key, update, reader, gate)
    ]
    states, new_values = state_pass(
        *flat,  # type: ignore[arg-type]
        pool,
        slots,
        plan,
        snapshot_pool=checkpoints,
        gate_base_2=True,
        key_major=not a["state_v_first"],
    )
    assert states is not None and new_values is not None
    capture.store(checkpoints)
    states = states.view(batch, -1, *row)
    return states, new_values.view_as(update), pool if a["output_final_state"] else None
