"""Which policies no other one beats: more tokens resumed for less held."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from spc_sglang.replay.metrics import Row

# knows the future, so it is no choice that a user has
BOUNDS = frozenset(("clairvoyant",))
COSTS = {"checkpoints": "peak_live", "bytes": "held_bytes"}
Choice = TypeVar("Choice")


def undominated(
    choices: Iterable[Choice], cost: Callable[[Choice], float], gain: Callable[[Choice], float]
) -> list[Choice]:
    """Those that no other of less or equal cost equals or beats in gain, cheapest first.

    Of equal ones the first is kept. O(n log n).
    """
    best: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (cost(c), -gain(c))):
        if not best or gain(choice) > gain(best[-1]):
            best.append(choice)
    return best


def front(rows: Iterable[Row], cost: str) -> list[Row]:
    """Rows that no other row of less or equal cost equals or beats in share, cheapest first.

    `cost` is a key of COSTS: checkpoints held at the peak, or bytes of KV and checkpoints. Rows
    without that figure and the bounds are left out. Of equal rows the first is kept.
    """
    name = COSTS[cost]
    known = [r for r in rows if r.policy not in BOUNDS and getattr(r, name) is not None]
    return undominated(known, lambda r: getattr(r, name), lambda r: r.share)


def as_json(rows: Iterable[Row]) -> dict[str, list[dict[str, object]]]:
    """Both fronts, with only what places a row on them; no bytes without a model."""
    rows = list(rows)
    return {
        cost: [
            {"policy": r.policy, "slots": r.slots, "held": getattr(r, name), "share": r.share}
            for r in front(rows, cost)
        ]
        for cost, name in COSTS.items()
    }
