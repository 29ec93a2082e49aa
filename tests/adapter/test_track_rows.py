"""Index rows against a plain loop over every chunk of every sequence."""

from __future__ import annotations

import random

import pytest

from spc_sglang.adapter.track_rows import build_rows

CHUNK, WINDOW = 64, 3


def naive_state_rows(extend_lens: list[int]) -> dict[tuple[int, int], int]:
    """Row of `h` by (batch row, tokens computed before that state), in kernel order."""
    rows: dict[tuple[int, int], int] = {}
    for row, length in enumerate(extend_lens):
        for tokens in range(0, length, CHUNK):
            rows[row, tokens] = len(rows)
    return rows


def test_rows_match_the_naive_enumeration() -> None:
    rng = random.Random(3)
    for _ in range(500):
        extend_lens = [rng.randrange(1, 500) for _ in range(rng.randrange(1, 5))]
        prefix_lens = [rng.randrange(0, 900) for _ in extend_lens]
        positions = [
            (row, prefix_lens[row] + tokens)
            for row, length in enumerate(extend_lens)
            for tokens in [*range(CHUNK, length, CHUNK), *([length] if length >= WINDOW else [])]
            if rng.random() < 0.5
        ]
        rng.shuffle(positions)
        rows = build_rows(positions, prefix_lens, extend_lens, chunk=CHUNK, window=WINDOW)
        state_row = naive_state_rows(extend_lens)
        h_rows = dict(zip(rows.h_capture, rows.h_source, strict=True))
        finals = dict(zip(rows.final_capture, rows.final_row, strict=True))
        for capture, (row, depth) in enumerate(positions):
            computed = depth - prefix_lens[row]
            start = sum(extend_lens[:row]) + computed - WINDOW
            assert rows.conv_start[capture] == start, (extend_lens, row, depth)
            if computed == extend_lens[row]:
                assert finals[capture] == row and capture not in h_rows
            else:
                assert h_rows[capture] == state_row[row, computed], (extend_lens, row, depth)


@pytest.mark.parametrize("depth", [99, 101, 1000, 128 + 65])
def test_positions_that_the_forward_cannot_give_are_a_bug(depth: int) -> None:
    with pytest.raises(AssertionError):
        build_rows([(0, depth)], [100], [200], chunk=CHUNK, window=WINDOW)
