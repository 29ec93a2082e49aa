"""The demo's parts that need no server."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from examples.demo.client import Answer
from examples.demo.measure import Measurement, Run
from examples.demo.sent_tokens import SentTokens
from examples.demo.settings import DemoSettings
from examples.demo.summary import as_json, compare, format_table
from examples.demo.texts import load_texts
from examples.demo.workload import GROUPS, Request, build_workload


@pytest.mark.parametrize("seed", range(20))
def test_matches_equal_a_token_by_token_search(seed: int) -> None:
    """SentTokens agrees with a scan, and counts each node of the prefix tree once."""
    draw = random.Random(seed)
    sent, prefixes, earlier = SentTokens(), set(), []
    for _ in range(12):
        tokens = [draw.randrange(2) for _ in range(draw.randint(1, 9))]
        known = [
            size for size in range(len(tokens)) for old in earlier if old[:size] == tokens[:size]
        ]
        assert sent.match(tokens) == max(known, default=0), (seed, tokens, earlier)
        sent.add(tokens)
        earlier.append(tokens)
        prefixes |= {tuple(tokens[:size]) for size in range(1, len(tokens) + 1)}
        assert sent.distinct_tokens == len(prefixes), (seed, tokens, earlier)


def test_shipped_text_serves_without_any_data_set(tmp_path: Path) -> None:
    """With no data sets around, every kind of traffic still has its text."""
    texts = load_texts(tmp_path)
    assert texts.source == "shipped text"
    assert len(texts.system_prompts) == 3
    requests = build_workload(texts)
    assert requests == build_workload(texts)
    assert {request.group for request in requests} == set(GROUPS)
    assert len({request.name for request in requests}) == len(requests)
    turns = [request for request in requests if request.group == "chat"]
    assert [request.continues for request in turns] == [False] + [True] * (len(turns) - 1)


def test_shipped_prompts_are_revisions_with_a_common_start(tmp_path: Path) -> None:
    """Consecutive revisions differ, and only after a good part of the text."""
    prompts = load_texts(tmp_path).system_prompts
    for old, new in itertools.pairwise(prompts):
        assert old != new
        assert old[:1000] == new[:1000]


def test_a_differing_answer_is_named() -> None:
    """Equal token ids compare logprobs; other ids make the outputs differ."""
    stock, ours = _run((1, 2)), _run((1, 2), logprob=-1.5)
    agreement = compare(stock, ours)
    assert agreement.identical
    assert agreement.max_logprob_difference == 0.5
    assert compare(stock, _run((1, 3))).differing == ("documents", *GROUPS[1:])


def test_table_and_json_hold_the_same_sums() -> None:
    """Every sum of the JSON line is printed in the table."""
    stock, ours = _run((1, 2)), _run((1, 2))
    result = as_json(stock, ours, compare(stock, ours))
    assert result["stock"]["prompt_tokens"] == 3 * 1000
    assert result["stock"]["recomputed_tokens"] == 3 * (700 - 640)
    table = format_table(stock, ours)
    assert "3,000" in table
    assert "180" in table


def test_settings_name_the_bad_value() -> None:
    """User input raises ValueError with the value."""
    with pytest.raises(ValueError, match="'gpt'"):
        DemoSettings(model="gpt")
    with pytest.raises(ValueError, match="pool_slots must be at least 1, got 0"):
        DemoSettings(pool_slots=0)


def _measurement(
    output_ids: tuple[int, ...],
    *,
    group: str = "documents",
    prompt_tokens: int = 1000,
    matched_tokens: int = 0,
    cached_tokens: int = 0,
    logprob: float = -1.0,
) -> Measurement:
    answer = Answer(output_ids, (logprob,) * len(output_ids), cached_tokens, ttft_s=0.1)
    request = Request(group, group, "text")
    return Measurement(request, prompt_tokens, matched_tokens, answer, None, None)


def _run(output_ids: tuple[int, ...], *, logprob: float = -1.0) -> Run:
    measurements = tuple(
        _measurement(
            output_ids, group=group, matched_tokens=700, cached_tokens=640, logprob=logprob
        )
        for group in GROUPS
    )
    return Run(measurements, distinct_tokens=1000, server_info={})
