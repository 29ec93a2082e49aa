"""Where captures are planned: on the forward's grid, inside it, most valuable first."""

from __future__ import annotations

import random

import pytest

from spc_sglang.planning.capture_policy import Extend, reachable
from spc_sglang.planning.learned import Every, Nothing, PlannedCaptures


def extend(prefix: int = 0, end: int = 1000, prompt: int = 1000, **more: int | None) -> Extend:
    return Extend(prefix=prefix, end=end, prompt=prompt, grid=64, **more)


def block(step: int) -> PlannedCaptures:
    return PlannedCaptures(Every(step), slack_step=None)


ENDS = PlannedCaptures(Nothing(), slack_step=None)


def test_block_placement_adds_even_depths_after_branch_and_prompt_end() -> None:
    plan = block(256).plan(extend(overlap_depth=450, restore_depth=0, engine_depth=None))
    assert plan == (448, 960, 256, 512, 768)


def test_engine_checkpoint_is_not_captured_twice() -> None:
    assert block(256).plan(extend(engine_depth=960)) == (256, 512, 768)


def test_prompt_that_is_a_multiple_of_the_grid_gets_the_depth_before_its_end() -> None:
    """A repeat matches all but the last token, so a state at the end would be useless to it."""
    assert ENDS.plan(extend(end=1024, prompt=1024, engine_depth=1024)) == (960,)


def test_no_branch_capture_when_everything_matched_was_resumed() -> None:
    assert ENDS.plan(extend(prefix=128, overlap_depth=128, restore_depth=128)) == (128 + 832,)


def test_branch_lands_in_the_chunk_that_computes_it() -> None:
    first = extend(prefix=0, end=256, overlap_depth=450, engine_depth=256)
    second = extend(prefix=256, end=512, overlap_depth=450, engine_depth=512)
    assert ENDS.plan(first) == ()
    assert ENDS.plan(second) == (448,)


def test_off_grid_start_moves_depths_to_the_grid_of_that_forward() -> None:
    plan = block(128).plan(extend(prefix=150, end=500, prompt=500, engine_depth=470))
    assert plan == (150 + 64, 150 + 192)
    assert all((depth - 150) % 64 == 0 for depth in plan)


def test_plans_are_reachable_and_without_repeats() -> None:
    """Random forwards: every depth lies on the grid, inside the forward, and occurs once."""
    rng = random.Random(11)
    for _ in range(3000):
        prefix = rng.randrange(0, 3000)
        end = prefix + rng.randrange(1, 3000)
        matched = rng.randrange(0, end)
        case = Extend(
            prefix=prefix,
            end=end,
            prompt=end + rng.choice([0, 0, 500]),
            grid=rng.choice([64, 128]),
            overlap_depth=max(matched, prefix),
            restore_depth=min(matched, prefix),
            engine_depth=rng.choice([None, end]),
        )
        plan = block(rng.choice([64, 100, 256, 4096])).plan(case)
        assert len(set(plan)) == len(plan), case
        assert all(prefix < depth <= end and depth != case.engine_depth for depth in plan), case
        assert all((depth - prefix) % case.grid == 0 for depth in plan), case


def test_order_of_proposals_is_kept() -> None:
    assert reachable(extend(), [900, 100, 128, 5000, 10]) == (896, 64, 128)


@pytest.mark.parametrize("bad", [{"grid": 0}, {"end": 0}, {"prefix": -1}])
def test_impossible_forwards_are_refused(bad: dict[str, int]) -> None:
    values = {"prefix": 0, "end": 10, "prompt": 10, "grid": 64} | bad
    with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
        Extend(**values)


def test_block_must_be_positive() -> None:
    with pytest.raises(ValueError, match="0"):
        Every(0)
