"""The table of policies by name; each entry builds a fresh contender for one pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from spc_sglang.planning.learned import (
    AbsoluteDP,
    Balanced,
    Interior,
    Logarithmic,
    Nothing,
    PlannedCaptures,
    SquareRoot,
)
from spc_sglang.planning.observation import Observations
from spc_sglang.planning.presets import PRESETS, Policy, build
from spc_sglang.planning.retention import Retention
from spc_sglang.replay.clairvoyant import ClairvoyantRetention, EveryLaterMatch, Future
from spc_sglang.replay.evictions import (
    EntryLru,
    Fifo,
    Lru,
    Marconi,
    PathCapped,
    SegmentLength,
)
from spc_sglang.replay.schedules import (
    Blocks,
    ChunkEnds,
    End,
    FixedLadder,
    Greedy,
    StaticOffsets,
    WholeBlocks,
)
from spc_sglang.replay.trace import Trace

RECIPE_CHECKPOINTS = 4
MARCONI_ALPHA = 2.0
PERIOD_TOKENS = 4096
HYBRID_BLOCK_TOKENS = 512
LADDER_TOKENS = 8192
MICRO_BATCH_TOKENS = 512

Build = Callable[[int, Trace], Policy]


def _only(interior: Interior, retention: Retention) -> Policy:
    captures = PlannedCaptures(interior, ends=False, slack_step=None)
    return Policy(captures, retention, Observations())


def _learns(make: Callable[[Observations], Interior], retention: Retention) -> Policy:
    observations = Observations()
    captures = PlannedCaptures(make(observations), ends=False, slack_step=None)
    return Policy(captures, retention, observations)


def _ends_only(retention: Retention) -> Policy:
    return Policy(PlannedCaptures(Nothing(), slack_step=None), retention, Observations())


@cache
def _future(trace: Trace) -> Future:
    return Future(trace)


def clairvoyant(slots: int, trace: Trace) -> Policy:
    """Heuristic yardstick that knows the requests to come."""
    retention = ClairvoyantRetention(slots, _future(trace))
    return _only(EveryLaterMatch(retention), retention)


CONTENDERS: dict[str, Build] = {
    "spc": lambda s, t: build(PRESETS["spc"], s),
    "spc-ladder": lambda s, t: build(PRESETS["ladder"], s),
    "paper": lambda s, t: _learns(lambda o: AbsoluteDP(o, RECIPE_CHECKPOINTS), EntryLru(s)),
    "sglang-2k": lambda s, t: _only(ChunkEnds(2048), Lru(s)),
    "sglang-8k": lambda s, t: _only(ChunkEnds(8192), Lru(s)),
    "sglang-cap3": lambda s, t: _only(ChunkEnds(8192), PathCapped(s, 3)),
    "seglen": lambda s, t: _only(ChunkEnds(8192), SegmentLength(s)),
    "vllm": lambda s, t: _only(WholeBlocks(HYBRID_BLOCK_TOKENS), Lru(s)),
    "trtllm": lambda s, t: _only(StaticOffsets(PERIOD_TOKENS), Lru(s)),
    "llamacpp": lambda s, t: _only(FixedLadder(LADDER_TOKENS, MICRO_BATCH_TOKENS), Fifo(s)),
    "marconi": lambda s, t: _ends_only(Marconi(s, MARCONI_ALPHA)),
    "balanced": lambda s, t: _only(Balanced(RECIPE_CHECKPOINTS), EntryLru(s)),
    "block": lambda s, t: _only(Blocks(RECIPE_CHECKPOINTS), EntryLru(s)),
    "sqrt": lambda s, t: _only(SquareRoot(), EntryLru(s)),
    "log": lambda s, t: _only(Logarithmic(RECIPE_CHECKPOINTS), EntryLru(s)),
    "greedy": lambda s, t: _learns(lambda o: Greedy(o, RECIPE_CHECKPOINTS), EntryLru(s)),
    "end": lambda s, t: _only(End(), Lru(s)),
    "none": lambda s, t: _only(Nothing(), Lru(s)),
    "clairvoyant": clairvoyant,
}
