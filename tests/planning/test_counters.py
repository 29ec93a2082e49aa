"""Counters add up: matched tokens are either resumed or lost."""

from __future__ import annotations

import pytest

from spc_sglang.planning.counters import CacheCounters


def test_matched_is_resumed_plus_lost() -> None:
    counters = CacheCounters()
    counters.admit(
        prompt_tokens=1000,
        overlap_depth=900,
        restore_depth=640,
        grid=64,
        ghost_depth=704,
        no_slot_depth=768,
        refused_depth=832,
    )
    counters.admit(prompt_tokens=500, overlap_depth=0, restore_depth=0)
    report = counters.as_dict()
    assert report["matched_tokens"] == report["resumed_tokens"] + report["lost_tokens"] == 900
    assert report["lost_evicted_tokens"] == 704 - 640
    assert report["lost_no_slot_tokens"] == 768 - 704
    assert report["lost_refused_tokens"] == 832 - 768
    assert report["lost_uncaptured_tokens"] == 896 - 832
    assert report["lost_off_grid_tokens"] == 900 - 896
    assert report["ghost_hits"] == 1
    assert report["requests"] == 2 and report["requests_with_loss"] == 1


def test_resuming_deeper_than_the_match_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        CacheCounters().admit(prompt_tokens=10, overlap_depth=4, restore_depth=5)
