"""The scenarios on one server per configuration: strategy, page, chunk, overlap, model, dtype.

Exactness by pool dtype: where the pool holds the computed states (fp32 pool), warm equals cold
bit for bit as long as chunks end on the 64-token grid. Off-grid chunk ends (chunks of 100
tokens, or `no_buffer`, which stores the states of prompt ends) change where the kernel's
chunks begin, so warm and cold differ by rounding; the bound is stated beside each row.
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
from tests.server import scenarios
from tests.server.client import Client, tokens
from tests.server.scenarios import Bounds

pytestmark = pytest.mark.sglang

SPACING = 128
MODELS = Path(__file__).parents[2] / ".cache" / "models"


EXACT = Bounds()


@dataclass(frozen=True)
class Row:
    """One configuration and what exactness means on it."""

    name: str
    family: str = "qwen3_5"
    dtype: str = "float32"
    strategy: str = "extra_buffer"
    page_size: int = 1
    chunk: int = 2048
    overlap: bool = True
    bounds: Bounds = EXACT
    arguments: tuple[str, ...] = ()
    eviction: str = "value"
    retract: bool = False
    pool_slots: int = 40


ROWS = (
    Row("extra_buffer-page1-chunk2048-overlap"),
    Row("lazy-page64-chunk64-overlap", strategy="extra_buffer_lazy", page_size=64, chunk=64),
    Row(
        "no_buffer-page1-chunk100-retract",
        strategy="no_buffer",
        chunk=100,
        bounds=Bounds(5e-5, 5e-5),
        eviction="lru",
        retract=True,
        pool_slots=16,
    ),
    Row(
        "bf16-page64-chunk2048-sync-retract",
        dtype="bfloat16",
        page_size=64,
        overlap=False,
        bounds=Bounds(0.0, 0.25, batches_compare=False),
        retract=True,
        pool_slots=24,
    ),
    Row(
        "qwen3_next-chunk100-overlap-mixed",
        family="qwen3_next",
        chunk=100,
        bounds=Bounds(5e-5, 5e-5),
        arguments=("--enable-mixed-chunk",),
    ),
    # KDA and latent attention
    Row("kimi_linear-page1-chunk2048-overlap", family="kimi_linear"),
    # Mamba2 beside attention; one chunk grid for the batch, so batches round otherwise
    Row("falcon_h1-page1-chunk2048-overlap", family="falcon_h1"),
    Row(
        "nemotron_h-page64-chunk512-sync",
        family="nemotron_h",
        page_size=64,
        chunk=512,
        overlap=False,
    ),
    Row(
        "granite_hybrid-no_buffer-page1-chunk100-mixed",
        family="granite_hybrid",
        strategy="no_buffer",
        chunk=100,
        bounds=Bounds(5e-5, 5e-5),
        arguments=("--enable-mixed-chunk",),
    ),
)


@dataclass(frozen=True)
class Server:
    row: Row
    client: Client
    model: Path


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    row: Row = request.param
    model = build_model(row.family, MODELS / f"{row.family}-{row.dtype}", dtype=row.dtype)
    environment = {
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
        "SGLANG_ENABLE_TREE_CACHE_SANITY_CHECK": "1",
    }
    if row.retract:
        environment["SGLANG_TEST_RETRACT"] = "1"
    config = CpuServerConfig(
        model,
        fork=True,
        dtype=row.dtype,
        max_total_tokens=12288,
        max_mamba_cache_size=row.pool_slots,
        chunked_prefill_size=row.chunk,
        page_size=row.page_size,
        mamba_radix_cache_strategy=row.strategy,
        overlap=row.overlap,
        radix_cache_backend="spc",
        extra_arguments=(
            *("--spc-placement", "block", "--spc-block-tokens", str(SPACING)),
            *("--spc-eviction", row.eviction),
            *row.arguments,
        ),
        extra_environment=environment,
    )
    log_path = tmp_path_factory.mktemp("server") / "server.log"
    with running_server(config, log_path) as handle:
        yield Server(row, Client(handle.base_url), model)
        assert handle.process.poll() is None, log_path.read_text()[-3000:]
    complaints = re.findall(
        r"^.*(?:memory leak|Traceback|Scheduler hit).*$", log_path.read_text(), re.MULTILINE
    )
    assert not complaints, complaints[:5]


def test_warm_equals_cold(server: Server) -> None:
    scenarios.warm_equals_cold(server.client, server.row.bounds, spacing=SPACING)
    scenarios.accounts_are_balanced(server.client)
    # an extra_buffer forward of less than two grid steps has only the engine's own position
    captures_fit = server.row.chunk >= 2 * scenarios.GRID or server.row.strategy == "no_buffer"
    assert (server.client.report()["published"] > 0) is captures_fit


def test_second_branch_hits_the_first_time(server: Server) -> None:
    scenarios.second_branch_hits_the_first_time(server.client, server.row.bounds, spacing=SPACING)


def test_same_prompt_again(server: Server) -> None:
    scenarios.same_prompt_again(server.client, server.row.bounds, lengths=(1000, 1024, 1025))


def test_one_token_tail(server: Server) -> None:
    scenarios.one_token_tail(server.client, server.row.bounds)


def test_group_in_flight(server: Server) -> None:
    scenarios.group_in_flight(server.client, server.row.bounds)
    scenarios.accounts_are_balanced(server.client)


def test_resumed_answer_equals_transformers(server: Server) -> None:
    """transformers, without any cache, chooses the tokens that a resumed request got."""
    if server.row.dtype != "float32":
        pytest.skip("bf16 rounds differently in transformers; the fp32 rows compare")
    client, document = server.client, tokens(704, seed=8)
    prompt = document[:520] + tokens(scenarios.TAIL_TOKENS, seed=9)
    client.flush()
    client.generate(document)
    answer = client.generate(prompt)
    assert answer.cached > 0
    chosen, logprobs = greedy_logprobs(server.model, prompt, answer.tokens)
    assert chosen == list(answer.tokens)
    assert max(abs(a - b) for a, b in zip(logprobs, answer.logprobs, strict=True)) < 1e-4


def test_growing_chat(server: Server) -> None:
    scenarios.growing_chat(server.client, server.row.bounds)


def test_crowded_pool_with_hang_ups(server: Server) -> None:
    scenarios.crowded_pool(server.client, server.row.bounds, prompts=20)
    scenarios.accounts_are_balanced(server.client)
    assert (server.client.report()["readmitted_requests"] > 0) is server.row.retract
