"""Every placement by name: from a law, an entry's length N and a budget M to checkpoint depths."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spc_sglang.placement import (
    OverlapWeights,
    balanced,
    block,
    greedy,
    logarithmic,
    place,
    random_spaced,
    sqrt_spaced,
)

Depths = tuple[int, ...]
GRID_TOKENS = 64  # of the gated-delta kernels


class Placement(NamedTuple):
    """`uses_law`: it looks at where overlaps end; `fixed_count`: M says nothing to it."""

    depths: Callable[[OverlapWeights, int], Depths]
    uses_law: bool = False
    fixed_count: bool = False


def _blocks(law: OverlapWeights, budget: int) -> Depths:
    """M equal blocks; the last ends with the entry."""
    return block(law.length, -(-law.length // budget))


def _dp_on_grid(law: OverlapWeights, budget: int) -> Depths:
    """Nothing fits in an entry shorter than the grid's step."""
    return place(law, budget, grid=GRID_TOKENS).depths if law.length >= GRID_TOKENS else ()


# each takes (law, M); the law carries N
PLACEMENTS: dict[str, Placement] = {
    "dp": Placement(lambda law, m: place(law, m).depths, uses_law=True),
    "dp, grid 64": Placement(_dp_on_grid, uses_law=True),
    "greedy": Placement(greedy, uses_law=True),
    "balanced": Placement(lambda law, m: balanced(law.length, m)),
    "block": Placement(_blocks),
    "log": Placement(lambda law, m: logarithmic(law.length, m)),
    # drawn anew for each length
    "random": Placement(lambda law, m: random_spaced(law.length, m, seed=law.length)),
    "sqrt": Placement(lambda law, m: sqrt_spaced(law.length), fixed_count=True),
}
BASELINES = ("balanced", "block", "log", "random")


def within(law: OverlapWeights, length: int) -> OverlapWeights | None:
    """The part of the law that an entry of `length` tokens can see, or None."""
    inside = law.depths <= length
    if not inside.any():
        return None
    return OverlapWeights(law.depths[inside], law.weights[inside], length)


def depths_for(name: str, law: OverlapWeights | None, length: int, budget: int) -> Depths:
    """Checkpoints of one entry; balanced where a placement needs a law and there is none."""
    seen = None if law is None else within(law, length)
    if seen is None:
        if PLACEMENTS[name].uses_law:
            name = "balanced"
        seen = OverlapWeights([length], [1.0], length)
    return PLACEMENTS[name].depths(seen, budget)
