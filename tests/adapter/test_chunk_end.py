"""Which planned depth ends the next chunk; the rest is tested on servers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spc_sglang.adapter.chunk_end import tokens_to_next_end


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (0, 128),
        (64, 64),
        (128, 320),  # the depth it stands on is behind it
        (100, None),  # no depth is on the grid from here
        (448, None),
    ],
)
def test_the_next_end_lies_ahead_and_on_the_grid(prefix: int, expected: int | None) -> None:
    request = SimpleNamespace(_spc_chunk_ends=(128, 448))
    assert tokens_to_next_end(request, prefix, grid=64) == expected


def test_a_request_that_was_never_planned_is_not_cut() -> None:
    assert tokens_to_next_end(SimpleNamespace(), 0, grid=64) is None
