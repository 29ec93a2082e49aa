"""From options to the policy objects: what is captured, what is learned, who chooses victims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spc_sglang.adapter.options import SpcOptions
from spc_sglang.planning.learned import (
    SLACK_STEP_TOKENS,
    AbsoluteDP,
    Balanced,
    Every,
    Interior,
    Ladder,
    Learned,
    Logarithmic,
    Nothing,
    PlannedCaptures,
    SquareRoot,
)
from spc_sglang.planning.observation import Observations

_INTERIORS: dict[str, Callable[[SpcOptions, Observations], Interior]] = {
    "learned": lambda chosen, seen: Learned(seen, chosen.checkpoints),
    "ladder": lambda chosen, seen: Ladder(),
    "dp": lambda chosen, seen: AbsoluteDP(seen, chosen.checkpoints),
    "balanced": lambda chosen, seen: Balanced(chosen.checkpoints),
    "log": lambda chosen, seen: Logarithmic(chosen.checkpoints),
    "sqrt": lambda chosen, seen: SquareRoot(),
    "block": lambda chosen, seen: Every(chosen.block_tokens),
    "none": lambda chosen, seen: Nothing(),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """`component` names who evicts: "priced", "recent" (both watch the tree) or "stock"."""

    captures: PlannedCaptures
    observations: Observations
    component: str


def build_policy(chosen: SpcOptions) -> Policy:
    """The policy that the options name."""
    observations = Observations(chosen.gamma)
    prices = chosen.eviction == "value"
    captures = PlannedCaptures(
        _INTERIORS[chosen.placement](chosen, observations),
        ends=chosen.preset != "paper",
        slack_step=SLACK_STEP_TOKENS if chosen.placement in ("learned", "ladder") else None,
    )
    watches_tree = chosen.placement == "learned"
    component = "priced" if prices else "recent" if watches_tree else "stock"
    return Policy(captures, observations, component)
