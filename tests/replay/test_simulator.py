"""The radix replay against a plain one that knows only sets of prefixes; metrics; determinism."""

from __future__ import annotations

import random

import pytest

from spc_sglang.planning.learned import Nothing, PlannedCaptures
from spc_sglang.planning.observation import Observations
from spc_sglang.planning.presets import Policy
from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.evictions import Lru
from spc_sglang.replay.metrics import row
from spc_sglang.replay.simulator import Outcome, Simulator
from spc_sglang.replay.trace import BLOCK_TOKENS, Request, Trace, whole_blocks

Prompt = tuple[int, ...]


def random_prompts(seed: int, count: int) -> list[Prompt]:
    rng = random.Random(seed)
    prompts: list[Prompt] = []
    for _ in range(count):
        base = rng.choice(prompts[-30:]) if prompts and rng.random() < 0.8 else ()
        fresh = tuple(rng.randrange(10**6) for _ in range(rng.randint(1, 12)))
        prompts.append((*base[: rng.randint(0, len(base))], *fresh))
    return prompts


def plain_lru(prompts: list[Prompt], slots: int) -> list[tuple[int, int]]:
    """(matched, resumed) blocks with branch and end captures under LRU, by definition."""
    known: set[Prompt] = set()
    states: dict[Prompt, None] = {}
    told = []
    for prompt in prompts:
        prefixes = [prompt[:depth] for depth in range(1, len(prompt) + 1)]
        matched = sum(prefix in known for prefix in prefixes)
        live = [prefix for prefix in prefixes[:matched] if prefix in states]
        restored = live[-1] if live else ()
        if restored:
            states[restored] = states.pop(restored)
        told.append((matched, len(restored)))
        known.update(prefixes)
        for depth in sorted({matched, len(prompt)}):
            if depth > len(restored) and prompt[:depth] not in states:
                states[prompt[:depth]] = None
                if len(states) > slots:
                    spared = (prompt[:depth], restored)
                    del states[next(s for s in states if s not in spared)]
    return told


@pytest.mark.parametrize("slots", [3, 10, 1000])
def test_replay_agrees_with_the_plain_one(slots: int) -> None:
    prompts = random_prompts(slots, 1500)
    trace = Trace.of(Request(prompt) for prompt in prompts)
    captures = PlannedCaptures(Nothing(), slack_step=None)
    outcome = Simulator(trace, Policy(captures, Lru(slots), Observations())).run()
    pairs = zip(outcome.matched_tokens, outcome.resumed_tokens, strict=True)
    assert [(m // BLOCK_TOKENS, r // BLOCK_TOKENS) for m, r in pairs] == plain_lru(prompts, slots)


@pytest.mark.parametrize("name", ["spc", "spc-ladder", "paper", "marconi", "clairvoyant"])
def test_two_replays_decide_alike(name: str) -> None:
    """No clock, no hash order, no unseeded draw."""
    prompts = random_prompts(1, 400)
    outcomes = []
    for _ in range(2):
        trace = Trace.of(Request(prompt) for prompt in prompts)
        outcomes.append(Simulator(trace, CONTENDERS[name](8, trace), 6400).run())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", list(CONTENDERS))
def test_pool_and_matches_bound_every_policy(name: str) -> None:
    """Never more live states than slots, never more resumed than matched, with a KV limit too."""
    trace = Trace.of(Request(prompt) for prompt in random_prompts(2, 300))
    for kv_tokens in (None, 6400):
        policy = CONTENDERS[name](5, trace)
        outcome = Simulator(trace, policy, kv_tokens).run()
        assert outcome.peak_live <= 5
        for matched, resumed in zip(outcome.matched_tokens, outcome.resumed_tokens, strict=True):
            assert 0 <= resumed <= matched


def test_row_by_hand() -> None:
    """Three requests: 1000 of 1500 matched tokens resumed, 2000 of 3000 prompt tokens prefilled."""
    outcome = Outcome([500, 1500, 1000], [0, 1000, 500], [0, 1000, 0], 4, 1, 3)
    figures = row("x", 8, outcome, 0.5)
    assert figures.share == pytest.approx(2 / 3, abs=1e-5)
    assert figures.recomputed_over_bound == pytest.approx(2000 / 1500, abs=1e-5)
    assert (figures.lost_p50_tokens, figures.lost_p99_tokens) == (0, 0)
    assert figures.captures_per_request == pytest.approx(4 / 3, abs=1e-4)
    assert figures.read_back_share == 0.25
    assert figures.reduction_factor == 3.0
    with pytest.raises(ValueError, match="no request"):
        row("x", 8, Outcome(), 0.0)


def test_last_prompt_token_is_never_cached() -> None:
    assert [whole_blocks(tokens) for tokens in (0, 1, 64, 65, 128, 129)] == [0, 0, 0, 1, 1, 2]
