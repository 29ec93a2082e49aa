"""Traffic that once starved short conversations: ours stays near stock, without the guard not."""

from __future__ import annotations

import pytest

from benchmarks.mixes import compare, mixes
from spc_sglang.planning.retention import Retention

STARVING = ("256-token prompts, 1 x 2048 between", "periodic jobs among one-offs")


def shortfalls() -> list[float]:
    found = dict(mixes(16))
    rows = [compare(16, name, found[name]) for name in STARVING]
    return [row.stock - row.spc for row in rows]


def test_the_guard_bounds_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = shortfalls()
    assert max(guarded) < 8.0
    monkeypatch.setattr(Retention, "guarded", False)
    assert all(bare > held + 2.0 for bare, held in zip(shortfalls(), guarded, strict=True))
