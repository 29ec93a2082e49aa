"""What users of hybrid models report, as requests with the right number of cached tokens.

One server at its defaults: `extra_buffer`, page 1, one prefill chunk a prompt, 24 state slots.
Stock SGLang resumes 0 tokens in most of these cases (first sightings of a branch, lengths that
are a multiple of the chunk, a group that arrives together).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.limits import HANG_LIMIT_S
from tests.server.client import Client, tokens
from tests.server.scenarios import GRID, accounts_are_balanced
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang

POOL_SLOTS = 24


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The server at its defaults."""
    config = CpuServerConfig(
        build_model("qwen3_5", MODELS / "qwen3_5-float32"),
        chunked_prefill_size=4096,
        max_mamba_cache_size=POOL_SLOTS,
        max_running_requests=4,
        max_total_tokens=32768,
        radix_cache_backend="spc",
        extra_arguments=("--enable-metrics",),
    )
    with running_server(config, tmp_path_factory.mktemp("server") / "server.log") as handle:
        client = Client(handle.base_url)
        yield client
        accounts_are_balanced(client)


def cached(client: Client, prompts: list[list[int]]) -> list[int]:
    """Cached tokens of prompts sent one after the other to an empty cache."""
    client.flush()
    return [client.generate(prompt).cached for prompt in prompts]


def test_two_branches_off_one_prefix(client: Client) -> None:
    """[A,B,C], [A,B,D], [A,B,E]: splitting a node must not lose the state (report 1)."""
    shared = tokens(1000, seed=500)
    first, second, third = cached(client, [shared + tokens(200, seed=n) for n in range(3)])
    assert first == 0 and second >= 768 and third == 960


def test_the_identical_prompt_twice(client: Client) -> None:
    """Report 2: 0 cached under extra_buffer with page size 1."""
    assert cached(client, [tokens(1000, seed=501)] * 2) == [0, 960]


@pytest.mark.parametrize("length", [1024, 1536, 2048, 4096])
def test_length_is_a_multiple_of_the_chunk(client: Client, length: int) -> None:
    """Report 4: the only state sat after the last token, which a repeat cannot match."""
    assert cached(client, [tokens(length, seed=length)] * 2) == [0, length - GRID]


def test_a_group_that_arrives_together(client: Client) -> None:
    """Report 3: four at once over 1,024 shared tokens; the first pays, the others resume."""
    shared = tokens(1024, seed=502)
    prompts = [shared + tokens(128, seed=510 + n) for n in range(4)]
    cold = [client.cold(prompt) for prompt in prompts]
    client.flush()
    before = client.report()["held_requests"]
    together = client.generate_together(prompts)
    assert [answer.cached for answer in together] == [0, 1024, 1024, 1024]
    assert client.report()["held_requests"] == before + 3
    for alone, answer in zip(cold, together, strict=True):
        assert alone.distance(answer) < 5e-5
    assert client.generate(shared + tokens(128, seed=520)).cached == 1024


def test_static_system_prompt_with_volatile_text(client: Client) -> None:
    """Report 8: the only checkpoint sat after the volatile part."""
    static = tokens(700, seed=503)
    hits = cached(client, [static + tokens(300, seed=530 + n) for n in range(4)])
    assert hits[0] == 0 and hits[1] >= 512 and hits[2:] == [640, 640]


def test_one_long_chain_does_not_flood_the_pool(client: Client) -> None:
    """Reports 5 and 6: a base that was hit, then one chain grown to 3,600, then the base again."""
    base = tokens(600, seed=504)
    chain = tokens(3600, seed=505)
    steps = [chain[:length] for length in range(300, 3601, 300)]
    hits = cached(client, [base + tokens(50, seed=540), base + tokens(50, seed=541), *steps])
    assert hits[1] >= 512
    again = client.generate(base + tokens(50, seed=542)).cached
    assert again >= 512, (hits, again)


def test_a_compacted_conversation_resumes_from_its_early_part(client: Client) -> None:
    """Report 5: after many turns the prompt branches off early, at the system prompt."""
    client.flush()
    system = tokens(512, seed=506)
    client.generate(system + tokens(60, seed=550))
    history = list(system)
    for turn in range(10):
        history += tokens(250, seed=560 + turn)
        answer = client.generate(history)
        history += answer.tokens
    assert client.generate(system + tokens(100, seed=551)).cached >= 448


def test_growing_chat_loses_nothing(client: Client) -> None:
    """Append-only turns resume from the previous end, whatever else was captured."""
    client.flush()
    history = tokens(400, seed=507)
    previous_end = 0
    for turn in range(8):
        answer = client.generate(history)
        assert answer.cached >= previous_end // GRID * GRID - GRID, turn
        history += [*answer.tokens, *tokens(180, seed=570 + turn)]
        previous_end = len(history) - 180


def test_losses_are_on_the_prometheus_endpoint(client: Client) -> None:
    """Reports 16 and 17: sums of matched, resumed and lost tokens, not a gauge per batch."""
    text = requests.get(client.base_url + "/metrics", timeout=HANG_LIMIT_S).text
    report = client.report()
    for name in ("requests", "matched_tokens", "resumed_tokens", "published"):
        values = re.findall(rf"^sglang:spc_{name}_total{{.*}} (\S+)$", text, re.MULTILINE)
        assert [float(value) for value in values] == [report[name]], name
