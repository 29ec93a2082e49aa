"""Stock SGLang on the CPU provider: right against transformers, and warm equal to cold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.reference import greedy_logprobs
from tests.server.client import Client

pytestmark = pytest.mark.sglang

NEW_TOKENS = 16
# fp32 arithmetic in another order; a wrong state moves log-probabilities by 0.1 and more
ROUNDING = 1e-4


class Answer(NamedTuple):
    """Greedy continuation of one prompt."""

    tokens: list[int]
    logprobs: list[float]
    cached_tokens: int


@dataclass(frozen=True)
class Stock:
    """A running server without our cache."""

    url: str
    model: Path
    exact: bool  # hits only at multiples of 64, where resuming is bit-equal
    hit_tokens: int  # what a prompt of 170 tokens finds of its first 150

    def generate(self, prompt: list[int]) -> Answer:
        answer = Client(self.url).generate(prompt, new_tokens=NEW_TOKENS)
        return Answer(list(answer.tokens), list(answer.logprobs), answer.cached)

    def flush(self) -> None:
        Client(self.url).flush()  # again where the last request is not quite over yet


CASES = [
    pytest.param(("qwen3_5", "extra_buffer", True, 128), id="qwen3_5-extra_buffer"),
    pytest.param(("qwen3_next", "no_buffer", False, 150), id="qwen3_next-no_buffer"),
]


@pytest.fixture(scope="module", params=CASES)
def stock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stock]:
    """One server a family."""
    family, strategy, exact, hit_tokens = request.param
    folder = tmp_path_factory.mktemp(family)
    model = build_model(family, folder / "model")
    config = CpuServerConfig(model, fork=True, mamba_radix_cache_strategy=strategy)
    with running_server(config, folder / "log") as handle:
        yield Stock(handle.base_url, model, exact, hit_tokens)


def make_prompt(num_tokens: int, seed: int) -> list[int]:
    """Random byte tokens."""
    chooser = random.Random(seed)
    return [chooser.randrange(4, 260) for _ in range(num_tokens)]


def largest_difference(one: list[float], other: list[float]) -> float:
    """The largest absolute difference of two equally long lists."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def test_greedy_tokens_equal_transformers(stock: Stock) -> None:
    """transformers chooses the same 16 tokens with the same log-probabilities."""
    prompt = make_prompt(170, seed=7)
    stock.flush()
    answer = stock.generate(prompt)
    chosen, expected = greedy_logprobs(stock.model, prompt, answer.tokens)
    assert chosen == answer.tokens
    assert largest_difference(expected, answer.logprobs) < ROUNDING


def test_a_hit_changes_nothing(stock: Stock) -> None:
    """After its prefix was seen, a prompt hits and answers as it did cold."""
    prefix, tail = make_prompt(150, seed=1), make_prompt(20, seed=2)
    stock.flush()
    cold = stock.generate(prefix + tail)
    stock.flush()
    stock.generate(prefix)
    warm = stock.generate(prefix + tail)
    assert (cold.cached_tokens, warm.cached_tokens) == (0, stock.hit_tokens)
    assert warm.tokens == cold.tokens
    difference = largest_difference(warm.logprobs, cold.logprobs)
    assert difference == 0 if stock.exact else difference < ROUNDING


def test_a_conversation_continues_from_decoded_tokens(stock: Stock) -> None:
    """The state left by decoding serves the next turn."""
    prompt, turn = make_prompt(120, seed=3), make_prompt(30, seed=4)
    stock.flush()
    first = stock.generate(prompt)
    second = stock.generate(prompt + first.tokens + turn)
    stock.flush()
    cold = stock.generate(prompt + first.tokens + turn)
    assert second.cached_tokens > 0 and second.tokens == cold.tokens
    assert largest_difference(second.logprobs, cold.logprobs) < ROUNDING


def test_requests_in_a_batch_answer_as_alone(stock: Stock) -> None:
    """Six concurrent requests of different lengths, with and without hits."""
    shared = make_prompt(100, seed=5)
    prompts = [shared + make_prompt(30 + 7 * row, seed=10 + row) for row in range(6)]
    alone = []
    for prompt in prompts:
        stock.flush()
        alone.append(stock.generate(prompt))
    stock.flush()
    stock.generate(shared)
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(stock.generate, prompts))
    for expected, found in zip(alone, together, strict=True):
        assert found.tokens == expected.tokens
        assert largest_difference(found.logprobs, expected.logprobs) < ROUNDING
