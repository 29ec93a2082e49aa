"""Our state pass in the place of SGLang's, for the forwards that have captures planned.

SGLang's Triton prefills (GDN and KDA) compute the states between chunks in one function that
takes no plan. A plan is therefore laid down per forward, tied to the `cu_seqlens` tensor of that
forward: a call with another one, or with none, runs SGLang's own kernel. Both kernels give the
same bits, so it does not matter for results which one ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spc_sglang.kernels.gated_delta.plan import SnapshotPlan

TARGETS = (
    "sglang.kernels.ops.attention.fla.chunk.chunk_gated_delta_rule_fwd_h",
    "sglang.kernels.ops.attention.fla.kda.chunk_gated_delta_rule_fwd_h",
)
PARAMETERS = ("k", "w", "u", "g", "gk", "initial_state", "initial_state_indices", "...")


@dataclass(frozen=True, slots=True)
class PlannedForward:
    """A plan whose slots are rows of every layer's state pool, and the forward it is for.

    `confirm` is called each time that a layer has written its states, before the layer copies
    what SGLang captures.
    """

    plan: SnapshotPlan
    cu_seqlens: Tensor  # int32 [N + 1]; held, so that its address stays its own
    confirm: Callable[[], None]

    def is_for(self, cu_seqlens: Tensor | None) -> bool:
        return (
            cu_seqlens is not None
            and cu_seqlens.data_ptr() == self.cu_seqlens.data_ptr()
            and cu_seqlens.numel() == self.plan.num_sequences + 1
        )


class ForwardPlan:
    """The plan of the forward that runs now, if any; one forward runs at a time in a process."""

    def __init__(self) -> None:
        self._planned: PlannedForward | None = None

    def lay_down(self, planned: PlannedForward | None) -> None:
        """Replace the plan; to be called before every prefill, with None where none is planned."""
        self._planned = planned

    def find(self, cu_seqlens: Tensor | None) -> PlannedForward | None:
        planned = self._planned
        return planned if planned is not None and planned.is_for(cu_seqlens) else None


FORWARD_PLAN = ForwardPlan()


def around_fwd_h(
    original: Callable[..., tuple[Tensor, Tensor]],
    k: Tensor,
    w: Tensor,
    u: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    initial_state: Tensor | None = None,
    initial_state_indices: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """AROUND `chunk_gated_delta_rule_fwd_h`: the states [1, NT, HV, V, K] and new values.

    initial_state is the layer's pool [S, HV, V, K]; planned states go to rows of it.
    """
    planned = FORWARD_PLAN.find(options.get("cu_seqlens"))
    if planned is None:
        return original(k, w, u, g, gk, initial_state, initial_state_indices, **options)
    from spc_sglang.kernels.gated_delta.triton import state_pass

    assert initial_state is not None and initial_state_indices is not None
    # `track_state`, SGLang's one snapshot a sequence, is in our plan: see StatePass
    states, new_values = state_pass(
        k,
        u,
        w,
        g if gk is None else gk,
        initial_state,
        initial_state_indices,
        planned.plan,
        gate_base_2=bool(options.get("use_exp2", False)),
        write_back=bool(options.get("inplace_update", True)),
    )
    assert states is not None and new_values is not None
    planned.confirm()
    return states, new_values


def can_run() -> str | None:
    """None where Triton can compile for the device, else what is missing."""
    try:
        import triton
    except ImportError:
        return "triton is not installed"
    if not torch.cuda.is_available():
        return f"triton {triton.__version__} has no device here"
    return None
