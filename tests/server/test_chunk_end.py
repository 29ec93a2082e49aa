"""Kernels that give no state inside a forward: with and without chunks that end on planned depths.

The server is the usual one, made to believe that its kernel gives none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.reference import greedy_logprobs
from tests.server import fault_plugin, scenarios
from tests.server.client import Client, tokens
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang

SPACING = 128
ROUNDING = 5e-5


@dataclass(frozen=True)
class Server:
    """A server that captures nothing."""

    client: Client
    model: Path
    log_path: Path
    cuts: bool
    bounds: scenarios.Bounds

    def forwards(self) -> list[int]:
        """New tokens of each prefill forward so far."""
        found = re.findall(r"Prefill batch.*?#new-token: (\d+)", self.log_path.read_text())
        return [int(count) for count in found]


ROWS = (
    pytest.param(("on", "extra_buffer", 64), id="on-extra_buffer-page64"),
    pytest.param(("on", "no_buffer", 1), id="on-no_buffer"),
    pytest.param(("off", "extra_buffer", 1), id="off"),
)


@pytest.fixture(scope="module", params=ROWS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    chunk_end, strategy, page_size = request.param
    folder = tmp_path_factory.mktemp("server")
    plugin = fault_plugin.write(folder, fault_plugin.NO_CAPTURES)
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    config = CpuServerConfig(
        model,
        fork=True,
        max_total_tokens=12288,
        max_mamba_cache_size=40,
        chunked_prefill_size=2048,
        page_size=page_size,
        mamba_radix_cache_strategy=strategy,
        radix_cache_backend="spc",
        extra_arguments=(
            *("--spc-placement", "block", "--spc-block-tokens", str(SPACING)),
            *("--spc-chunk-end", chunk_end),
        ),
        extra_environment={
            "PYTHONPATH": str(plugin),
            "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
            "SGLANG_ENABLE_TREE_CACHE_SANITY_CHECK": "1",
        },
    )
    log_path = folder / "server.log"
    with running_server(config, log_path) as handle:
        # no_buffer stores prompt ends, which lie off the grid
        bounds = scenarios.Bounds(0.0 if strategy == "extra_buffer" else ROUNDING, ROUNDING)
        yield Server(Client(handle.base_url), model, log_path, chunk_end == "on", bounds)
        assert handle.process.poll() is None, log_path.read_text()[-3000:]
    log = log_path.read_text()
    complaints = re.findall(r"^.*(?:memory leak|Traceback|Scheduler hit).*$", log, re.MULTILINE)
    assert not complaints, complaints[:5]
    assert ("each costs a forward" in log) is (chunk_end == "on")


def test_a_prompt_is_cut_at_its_planned_depths(server: Server) -> None:
    """Off, it is one forward, and a branch inside it finds nothing."""
    server.client.flush()
    before = len(server.forwards())
    document = tokens(704, seed=40)
    server.client.generate(document)
    lengths = server.forwards()[before:]
    assert lengths == ([SPACING] * 5 + [64] if server.cuts else [704])
    found = server.client.generate(document[:400] + tokens(200, seed=41))
    assert found.cached == (384 if server.cuts else 0)


def test_warm_equals_cold(server: Server) -> None:
    if server.cuts:
        scenarios.warm_equals_cold(server.client, server.bounds, spacing=SPACING)
        scenarios.same_prompt_again(server.client, server.bounds, lengths=(1000, 1024, 1025))
        scenarios.growing_chat(server.client, server.bounds)
    scenarios.accounts_are_balanced(server.client)
    assert server.client.report()["captured"] == 0


def test_resumed_answer_equals_transformers(server: Server) -> None:
    client, document = server.client, tokens(704, seed=8)
    prompt = document[:520] + tokens(scenarios.TAIL_TOKENS, seed=9)
    client.flush()
    client.generate(document)
    answer = client.generate(prompt)
    assert answer.cached == (512 if server.cuts else 0)
    chosen, logprobs = greedy_logprobs(server.model, prompt, answer.tokens)
    assert chosen == list(answer.tokens)
    assert max(abs(a - b) for a, b in zip(logprobs, answer.logprobs, strict=True)) < 1e-4


def test_crowds_are_served_and_one_prompt_at_a_time_is_cut(server: Server) -> None:
    """Requests that arrive together, abandoned ones, evictions: exact, and nothing is lost."""
    client = server.client
    client.flush()
    prompts = [tokens(600 + 40 * n, seed=700 + n) for n in range(6)]
    for prompt, answer in zip(prompts, client.generate_together(prompts), strict=True):
        server.bounds.check_batch(client, prompt, answer)
    scenarios.crowded_pool(client, server.bounds, prompts=20)
    scenarios.accounts_are_balanced(client)
