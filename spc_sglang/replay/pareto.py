"""Which policies no other one beats: more tokens resumed for less held."""

from __future__ import annotations

from collections.abc import Iterable

from spc_sglang.replay.metrics import Row

# knows the future, so it is no choice that a user has
BOUNDS = frozenset(("clairvoyant",))
COSTS = {"checkpoints": "peak_live", "bytes": "held_bytes"}


def front(rows: Iterable[Row], cost: str) -> list[Row]:
    """Rows that no other row of less or equal cost equals or beats in share, cheapest first.

    `cost` is a key of COSTS: checkpoints held at the peak, or bytes of KV and checkpoints. Rows
    without that figure and the bounds are left out. Of equal rows the first is kept.
    """
    name = COSTS[cost]
    known = [r for r in rows if r.policy not in BOUNDS and getattr(r, name) is not None]
    best: list[Row] = []
    for row in sorted(known, key=lambda r: (getattr(r, name), -r.share)):
        if not best or row.share > best[-1].share:
            best.append(row)
    return best


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
