"""The same requests to a stock server and to ours, with pools of one size.

No request may get another answer, chat must lose nothing, and where text is shared inside prompts
ours must resume more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.server.client import Answer, Client, tokens
from tests.server.scenarios import accounts_are_balanced
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang

POOL_SLOTS = 24
GRID = 64
Prompt = list[int]


@dataclass(frozen=True)
class Pair:
    """Both servers."""

    stock: Client
    ours: Client

    def cached(self, prompts: list[Prompt]) -> tuple[list[int], list[int]]:
        """Cached tokens by request, stock's and ours, from empty caches; answers must agree."""
        found = []
        for client in (self.stock, self.ours):
            client.flush()
            found.append([client.generate(prompt, new_tokens=2) for prompt in prompts])
        for theirs, own in zip(*found, strict=True):
            assert theirs.distance(own) < 5e-5
        stock, ours = ([answer.cached for answer in answers] for answers in found)
        return stock, ours


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers at their defaults, one prefill chunk a prompt."""
    with ExitStack() as stack:
        clients = []
        for backend in (None, "spc"):
            config = CpuServerConfig(
                build_model("qwen3_5", MODELS / "qwen3_5-float32"),
                fork=True,
                chunked_prefill_size=4096,
                max_mamba_cache_size=POOL_SLOTS,
                max_running_requests=4,
                max_total_tokens=65536,
                radix_cache_backend=backend,
            )
            log = tmp_path_factory.mktemp("server") / "server.log"
            clients.append(Client(stack.enter_context(running_server(config, log)).base_url))
        yield Pair(*clients)
        accounts_are_balanced(clients[1])


def test_append_only_chat_loses_nothing(pair: Pair) -> None:
    """Three chats in turn, each turn with the answer that the server gave."""
    histories = [tokens(200, seed=n) for n in range(3)]
    found: dict[str, list[Answer]] = {}
    for name, client in (("stock", pair.stock), ("ours", pair.ours)):
        client.flush()
        texts = [list(history) for history in histories]
        for turn in range(6):
            for chat, text in enumerate(texts):
                answer = client.generate(text, new_tokens=4)
                found.setdefault(name, []).append(answer)
                text += [*answer.tokens, *tokens(100, seed=100 * turn + chat)]
    for theirs, own in zip(found["stock"], found["ours"], strict=True):
        assert theirs.distance(own) < 5e-5
        assert own.cached >= theirs.cached
    assert sum(answer.cached for answer in found["ours"]) > 5000


def shared_documents() -> list[Prompt]:
    """Four documents, five questions each, in mixed order."""
    documents = [tokens(900, seed=200 + n) for n in range(4)]
    asked = [documents[n % 4] + tokens(60, seed=300 + n) for n in range(20)]
    random.Random(1).shuffle(asked)
    return asked


def system_prompt_revisions() -> list[Prompt]:
    """A system prompt in three revisions that differ from some point on."""
    base = tokens(1000, seed=400)
    revisions = [base, base[:700] + tokens(300, seed=401), base[:350] + tokens(650, seed=402)]
    return [revisions[n % 3] + tokens(80, seed=410 + n) for n in range(18)]


def retrieved_chunks() -> list[Prompt]:
    """Retrieval: a fixed instruction, then three of eight passages in order of rank."""
    rng = random.Random(2)
    instruction = tokens(300, seed=500)
    passages = [tokens(250, seed=510 + n) for n in range(8)]
    weights = [1 / (n + 1) for n in range(8)]
    asked = []
    for number in range(24):
        ranked = list(dict.fromkeys(rng.choices(range(8), weights, k=3)))
        text = [token for n in ranked for token in passages[n]]
        asked.append(instruction + text + tokens(50, seed=530 + number))
    return asked


def forked_conversation() -> list[Prompt]:
    """One history of eight turns; every turn is also tried with two other continuations."""
    history: Prompt = tokens(300, seed=600)
    asked = []
    for turn in range(8):
        history = history + tokens(120, seed=610 + turn)
        asked += [history + tokens(70, seed=640 + 10 * turn + fork) for fork in range(3)]
    return asked


@pytest.mark.parametrize(
    "workload", [shared_documents, system_prompt_revisions, retrieved_chunks, forked_conversation]
)
def test_shared_text_is_resumed_more(pair: Pair, workload: object) -> None:
    assert callable(workload)
    stock, ours = pair.cached(workload())
    assert sum(ours) > sum(stock), (stock, ours)


def test_a_warm_up_never_falls_behind(pair: Pair) -> None:
    """100 mixed requests from cold: after each, at most 2 points of the matched tokens behind."""
    rng = random.Random(3)
    heads = [tokens(500, seed=700 + n) for n in range(5)]
    chats = [tokens(150, seed=710 + n) for n in range(4)]
    prompts: list[Prompt] = []
    for number in range(100):
        if rng.random() < 0.5:
            prompts.append(rng.choice(heads) + tokens(rng.randint(20, 300), seed=800 + number))
        else:
            chat = rng.choice(chats)
            chat += tokens(60, seed=900 + number)
            prompts.append(list(chat))
    before = pair.ours.report()["matched_tokens"]
    stock, ours = pair.cached(prompts)
    matched = pair.ours.report()["matched_tokens"] - before
    assert matched > 20_000
    lead = 0
    for number, (theirs, own) in enumerate(zip(stock, ours, strict=True)):
        lead += own - theirs
        assert lead >= -max(GRID, 0.02 * matched * (number + 1) / len(prompts)), number
    assert lead > 0
