"""The cut of a trace keeps its sharing, and its token ids say the same as its blocks."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

from benchmarks.live_traces.report import failures
from benchmarks.live_traces.workload import Cut, Workload, load
from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.simulator import Simulator
from spc_sglang.replay.trace import BLOCK_TOKENS

HASHES = ([1, 2, 3], [1, 2, 4], [5], [1, 2, 3, 6], [1, 7])


def workload(folder: Path, *, most_blocks: int = 99, limit: int = 99) -> Workload:
    """A Mooncake trace whose blocks of 512 tokens become one block each."""
    path = folder / "trace.jsonl"
    lines = [{"input_length": 512 * len(ids) + 1, "hash_ids": ids} for ids in HASHES]
    path.write_text("\n".join(map(json.dumps, lines)))
    return load(Cut("mooncake", 8, most_blocks, limit, (2,)), (path,))


def common_tokens(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_coarsening_keeps_the_sharing(tmp_path: Path) -> None:
    """Eight 64-token keys of one Mooncake hash become one block."""
    cut = workload(tmp_path)
    assert cut.trace.prompt_blocks == (3, 3, 1, 4, 2)
    assert [tokens // BLOCK_TOKENS for tokens in cut.reusable] == [0, 2, 0, 3, 1]


def test_prompts_share_exactly_their_common_blocks(tmp_path: Path) -> None:
    """Equal blocks are equal tokens; blocks that part differ in their first token."""
    cut = workload(tmp_path)
    prompts = list(cut.prompts())
    assert prompts == list(cut.prompts())
    for first, path in zip(prompts, cut.trace.paths, strict=True):
        assert len(first) == BLOCK_TOKENS * len(path) + 1
        assert all(4 <= token <= 259 for token in first)
        for second, other in zip(prompts, cut.trace.paths, strict=True):
            blocks = common_tokens(path.tolist(), other.tolist())
            if second is not first:
                assert common_tokens(first, second) - BLOCK_TOKENS * blocks in (0, 1)


def test_cut_and_limit(tmp_path: Path) -> None:
    cut = workload(tmp_path, most_blocks=2, limit=4)
    assert cut.trace.prompt_blocks == (2, 2, 1, 2)
    assert cut.reusable == (0, 2 * BLOCK_TOKENS, 0, 2 * BLOCK_TOKENS)


def test_the_simulator_sees_the_same_reusable_tokens(tmp_path: Path) -> None:
    cut = workload(tmp_path)
    outcome = Simulator(cut.trace, CONTENDERS["spc"](8, cut.trace)).run()
    assert tuple(outcome.matched_tokens) == cut.reusable


def test_nothing_is_missed_without_cells() -> None:
    assert failures([]) == []
