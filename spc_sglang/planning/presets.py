"""Named policies: what a server option selects, checked, and built for one pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spc_sglang.planning.learned import (
    PRICE_TOKENS,
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
from spc_sglang.planning.retention import EVICTIONS, Retention


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What to capture and what to keep; ValueError for what does not exist."""

    placement: str = "learned"
    """One of `PLACEMENTS`."""
    eviction: str = "value"
    """"value" (the Pareto clock) or "lru"."""
    checkpoints: int = 2
    """M, interior positions a request; `balanced`, `log`, `dp` and `learned` use it."""
    gamma: float = 0.99
    """How fast learnt laws forget, per sample."""
    block_tokens: int = 512
    """Step of placement `block`."""
    price_tokens: float = PRICE_TOKENS
    """What a `learned` position must be expected to save."""
    ends: bool = True
    """Also capture branch point and prompt end."""
    slack: bool = True
    """Also capture every 2,048 tokens while the pool has room."""

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement {self.placement!r}: use one of {sorted(PLACEMENTS)}")
        if self.eviction not in EVICTIONS:
            raise ValueError(f"eviction {self.eviction!r}: use one of {EVICTIONS}")
        if not 1 <= self.checkpoints <= 64:
            raise ValueError(f"checkpoints must be in 1..64, got {self.checkpoints}")
        if not 0.0 < self.gamma <= 1.0:
            raise ValueError(f"gamma must be in (0, 1], got {self.gamma}")
        if self.block_tokens < 1:
            raise ValueError(f"block_tokens must be at least 1, got {self.block_tokens}")
        if not self.price_tokens >= 0.0:
            raise ValueError(f"price_tokens must be at least 0, got {self.price_tokens}")


@dataclass(frozen=True, slots=True)
class Policy:
    """The three parts that one scheduler runs."""

    captures: PlannedCaptures
    retention: Retention
    observations: Observations


_Make = Callable[[PolicyOptions, Observations], Interior]

PLACEMENTS: dict[str, _Make] = {
    "learned": lambda o, seen: Learned(seen, o.checkpoints, o.price_tokens),
    "ladder": lambda o, seen: Ladder(),
    "dp": lambda o, seen: AbsoluteDP(seen, o.checkpoints),
    "balanced": lambda o, seen: Balanced(o.checkpoints),
    "block": lambda o, seen: Every(o.block_tokens),
    "sqrt": lambda o, seen: SquareRoot(),
    "log": lambda o, seen: Logarithmic(o.checkpoints),
    "none": lambda o, seen: Nothing(),
}

PRESETS: dict[str, PolicyOptions] = {
    "spc": PolicyOptions(),
    "ladder": PolicyOptions(placement="ladder"),
    "paper": PolicyOptions(placement="dp", eviction="lru", checkpoints=4, ends=False, slack=False),
}


def build(options: PolicyOptions, slots: int) -> Policy:
    """The policy for a pool of `slots` states."""
    observations = Observations(options.gamma)
    captures = PlannedCaptures(
        PLACEMENTS[options.placement](options, observations),
        ends=options.ends,
        slack_step=SLACK_STEP_TOKENS if options.slack else None,
    )
    return Policy(captures, Retention(slots, options.eviction), observations)
