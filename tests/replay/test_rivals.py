"""Every policy on short traces whose answers are worked out by hand.

The main trace, in blocks of 64 tokens: P has 100; Q and R share 50 with P and differ from there;
then P and Q again; S shares 70 with P. KV matches: 0, 50, 50, 100, 100, 70.
"""

from __future__ import annotations

import pytest

from spc_sglang.planning.learned import Nothing, PlannedCaptures
from spc_sglang.planning.node import Kind
from spc_sglang.planning.observation import Observations
from spc_sglang.planning.presets import Policy
from spc_sglang.planning.retention import Retention
from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.evictions import (
    EntryLru,
    Fifo,
    Lru,
    Marconi,
    PathCapped,
    SegmentLength,
)
from spc_sglang.replay.schedules import Blocks, End
from spc_sglang.replay.simulator import Simulator
from spc_sglang.replay.trace import BLOCK_TOKENS, Request, Trace
from tests.planning.by_handle import ByHandle

Prompt = list[str]


def text(name: str, blocks: int) -> Prompt:
    return [f"{name}{index}" for index in range(blocks)]


P = text("p", 100)
Q = P[:50] + text("q", 50)
R = P[:50] + text("r", 50)
S = P[:70] + text("s", 30)
MAIN = [P, Q, R, P, Q, S]

BY_HAND = {
    # chunk ends 32, 64, 96, 100; Q leaves its branch 50 instead of 64
    "sglang-2k": [0, 32, 50, 100, 100, 64],
    # one chunk: Q's branch replaces its end
    "sglang-8k": [0, 0, 50, 100, 50, 50],
    "sglang-cap3": [0, 0, 50, 100, 50, 50],
    "seglen": [0, 0, 50, 100, 50, 50],
    # branch and end on blocks of eight: 48 and 96
    "vllm": [0, 0, 48, 96, 96, 48],
    # branch and end
    "marconi": [0, 0, 50, 100, 100, 50],
    # 64 tokens x 64 as well
    "trtllm": [0, 0, 50, 100, 100, 64],
    # 92 and 100 only: the prompts are shorter than 8,192 tokens
    "llamacpp": [0, 0, 0, 100, 100, 0],
    # 20, 40, 60, 80
    "balanced": [0, 40, 40, 80, 80, 60],
    # 25, 50, 75, 100
    "block": [0, 50, 50, 100, 100, 50],
    # every 81 tokens, moved down to the grid
    "sqrt": [0, 50, 50, 99, 99, 70],
    # 9 (off the grid), 80, 716 and 6401 tokens: 1 and 11 blocks
    "log": [0, 11, 11, 11, 11, 11],
    # balanced for want of data, then where overlaps were seen: 50, later 100 as well
    "paper": [0, 40, 50, 80, 50, 60],
    "greedy": [0, 40, 50, 80, 50, 60],
    "end": [0, 0, 0, 100, 100, 0],
    "none": [0, 0, 0, 0, 0, 0],
    "clairvoyant": [0, 50, 50, 100, 100, 70],
    # tail, branch, and every 12 blocks (an eighth) in slack; the ladder's guess is at 84
    "spc": [0, 48, 50, 100, 100, 60],
    "spc-ladder": [0, 48, 50, 100, 100, 60],
}


def resumed(policy: Policy, prompts: list[Prompt], kv_tokens: int | None = None) -> list[int]:
    """Blocks each request resumed."""
    trace = Trace.of(Request(prompt) for prompt in prompts)
    outcome = Simulator(trace, policy, kv_tokens).run()
    return [tokens // BLOCK_TOKENS for tokens in outcome.resumed_tokens]


def ends(retention: Retention) -> Policy:
    return Policy(PlannedCaptures(End(), ends=False, slack_step=None), retention, Observations())


def test_every_policy_is_covered() -> None:
    assert BY_HAND.keys() == CONTENDERS.keys()


@pytest.mark.parametrize("name", BY_HAND)
def test_ample_slots(name: str) -> None:
    """Where each policy captures shows in what is resumed when nothing is evicted."""
    trace = Trace.of(Request(prompt) for prompt in MAIN)
    assert resumed(CONTENDERS[name](512, trace), MAIN) == BY_HAND[name]


def test_lru_refreshes_what_is_used() -> None:
    """Two slots; A is used before C comes, so B goes."""
    a, b, c = text("a", 10), text("b", 10), text("c", 10)
    assert resumed(ends(Lru(2)), [a, b, a, c, a, b]) == [0, 0, 10, 0, 10, 0]


def test_fifo_does_not() -> None:
    """The same trace: A is the oldest when C comes."""
    a, b, c = text("a", 10), text("b", 10), text("c", 10)
    assert resumed(ends(Fifo(2)), [a, b, a, c, a, b]) == [0, 0, 10, 0, 0, 0]


@pytest.mark.parametrize(("retention", "last"), [(EntryLru(4), 20), (Lru(4), 10)])
def test_entries_stand_and_fall_together(retention: Retention, last: int) -> None:
    """States at 10 and 20 of A and B; a fork of A at 10 refreshes A's 20 under EntryLru only."""
    a, b = text("a", 20), text("b", 20)
    captures = PlannedCaptures(Blocks(2), ends=False, slack_step=None)
    policy = Policy(captures, retention, Observations())
    assert resumed(policy, [a, b, a[:10] + text("x", 10), a]) == [0, 0, 10, last]


def test_path_cap_drops_the_shallowest() -> None:
    """Five turns of a chat leave 10..50; a cap of 3 keeps 30, 40, 50: a fork at 10 finds none."""
    chat = text("c", 50)
    turns = [chat[:n] for n in (10, 20, 30, 40, 50)] + [chat[:10] + text("x", 5)]
    assert resumed(ends(PathCapped(16, 3)), turns) == [0, 10, 20, 30, 40, 0]
    assert resumed(ends(Lru(16)), turns) == [0, 10, 20, 30, 40, 10]


@pytest.mark.parametrize("retention", [Marconi(2, 2.0), SegmentLength(2)])
def test_length_can_outweigh_recency(retention: Retention) -> None:
    """A long old state stays, the short ones replace each other; LRU drops the long one."""
    long, short, other = text("l", 100), text("s", 10), text("t", 10)
    prompts = [long, short, other, long, short]
    assert resumed(ends(retention), prompts) == [0, 0, 0, 100, 0]
    assert resumed(ends(Lru(2)), prompts) == [0, 0, 0, 0, 0]


def test_marconi_spares_branching_nodes() -> None:
    """The shared state at 5 has the least score, but two children."""
    base = text("b", 5)
    one, two, three = (base + text(name, 20) for name in "xyz")
    policy = Policy(PlannedCaptures(Nothing(), slack_step=None), Marconi(3, 2.0), Observations())
    assert resumed(policy, [one, two, three, base + text("w", 9)]) == [0, 0, 5, 5]


def test_value_keeps_a_shared_prompt_under_a_flood() -> None:
    """A shared start stays while 30 long one-off chains pass through four slots; under LRU not."""
    base = text("b", 20)
    warm = [base + text(f"u{n}-", 5) for n in range(6)]
    flood = [text(f"f{n}-", 60) for n in range(30)]
    prompts = [*warm, *(p for n, f in enumerate(flood) for p in ((f, base + text(f"v{n}-", 5))))]
    trace = Trace.of(Request(prompt) for prompt in prompts)
    for name in ("spc", "spc-ladder"):
        assert resumed(CONTENDERS[name](4, trace), prompts)[-1] == 20


def test_clairvoyant_refuses_what_is_never_used_again() -> None:
    """One slot is enough when only one state has a future."""
    a, b = text("a", 10), text("b", 50)
    trace = Trace.of(Request(prompt) for prompt in (a, b, a))
    assert resumed(CONTENDERS["clairvoyant"](1, trace), [a, b, a]) == [0, 0, 10]


def test_states_go_with_their_kv() -> None:
    """With room for 15 blocks of KV, B's arrival pushes A out, state and all."""
    a, b = text("a", 10), text("b", 10)
    assert resumed(ends(Lru(4)), [a, a, b, a], kv_tokens=15 * BLOCK_TOKENS) == [0, 10, 0, 0]


def test_a_full_hit_refreshes_its_kv() -> None:
    """A is asked again before C comes: B is the oldest, although A left nothing new."""
    a, b, c = text("a", 10), text("b", 10), text("c", 10)
    prompts = [a, b, a, c, a]
    assert resumed(ends(Lru(9)), prompts, kv_tokens=25 * BLOCK_TOKENS) == [0, 0, 10, 0, 10]


@pytest.mark.parametrize("retention", [Marconi(2, alpha=10.0), SegmentLength(2)])
def test_other_engines_evict_by_their_own_score(retention: Retention) -> None:
    """Nothing of ours takes part: our guard would let the one go that was stored first."""
    tree = ByHandle(retention)
    for name, depth in (("long", 6400), ("short", 64)):
        tree.admitted([], None)
        tree.grown([(name, depth)])
        tree.inserted(name, Kind.TAIL)
    retention.guard.share = 1.0
    assert tree.choose_victim() == "short"
