"""Plans hold what was asked for, and refuse depths that have no state."""

from __future__ import annotations

import random

import pytest
import torch

from spc_sglang.kernels.gated_delta.plan import END, nearest_depths, plan_snapshots


def valid_depths(prefix: int, length: int) -> list[int]:
    return [*range(prefix, prefix + length, 64), prefix + length]


def test_lists_are_sorted_and_closed() -> None:
    plan = plan_snapshots([200, 64, 10], [0, 128, 5], [{192: 7, 64: 5, 200: 9}, {}, {5: 3}])
    assert plan.cu_tokens.tolist() == [0, 200, 264, 274]
    assert plan.chunk_base.tolist() == [0, 4, 5, 6]
    assert plan.first.tolist() == [0, 4, 5]
    assert plan.chunk.tolist() == [1, 3, 4, END, END, 0, END]
    assert plan.slot.tolist() == [5, 7, 9, -1, -1, 3, -1]
    assert (plan.num_chunks, plan.num_sequences, plan.num_snapshots) == (6, 3, 4)


def test_rows_known_to_the_device_replace_indices() -> None:
    plan = plan_snapshots([128, 64], None, [{64: 1, 128: -1}, {64: 0}])
    assert plan.with_rows(torch.tensor([40, 50])).slot.tolist() == [50, -1, -1, 40, -1]
    assert plan.slot.tolist() == [1, -1, -1, 0, -1]


@pytest.mark.parametrize(
    ("depth", "near"), [(65, (64, 128)), (10, (64, 128)), (129, (128, 192)), (263, (256, 264))]
)
def test_off_grid_depths_name_their_neighbours(depth: int, near: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"depth {depth} .* one are {near[0]} and {near[1]}$"):
        plan_snapshots([200], [64], [{depth: 1}])


def test_nearest_depths_against_enumeration() -> None:
    """Below and above among all valid depths; both at the rim when `depth` lies outside."""
    generator = random.Random(3)
    for _ in range(500):
        prefix, length = generator.randrange(300), generator.randrange(1, 300)
        depth = generator.randrange(700)
        valid = valid_depths(prefix, length)
        below = [d for d in valid if d <= depth]
        above = [d for d in valid if d > depth]
        expected = (below[-1], above[0]) if below and above else None
        if not below:
            expected = (valid[0], valid[1])
        elif not above:
            expected = (valid[-2], valid[-1])
        assert nearest_depths(depth, prefix, length) == expected, (depth, prefix, length)
