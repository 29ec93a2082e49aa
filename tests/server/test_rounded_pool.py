"""A bf16 state pool under an fp32 model, and the negative control of all exactness tests.

A pool that is narrower than the computed states cannot resume bit for bit what an undivided
run computes. What holds instead: resuming from a captured checkpoint equals a run whose
prefill chunk ended there, since both continue from the same stored state.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.server import fault_plugin
from tests.server.client import Client, tokens
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang

BLOCKS = ("--spc-placement", "block", "--spc-block-tokens", "128")
DEPTH = 384  # inside the only prefill chunk of the document


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with a bf16 state pool."""
    folder = tmp_path_factory.mktemp("server")
    config = CpuServerConfig(
        build_model("qwen3_5", MODELS / "qwen3_5-float32"),
        fork=True,
        radix_cache_backend="spc",
        extra_arguments=(*BLOCKS, "--mamba-ssm-dtype", "bfloat16"),
    )
    with running_server(config, folder / "server.log") as handle:
        yield Client(handle.base_url)


@pytest.fixture(scope="module", params=["qwen3_5", "kimi_linear", "falcon_h1"])
def ruined(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A server whose published checkpoints hold zeros, one a kind of recurrent layer."""
    folder = tmp_path_factory.mktemp("server")
    config = CpuServerConfig(
        build_model(request.param, MODELS / f"{request.param}-float32"),
        fork=True,
        radix_cache_backend="spc",
        extra_arguments=BLOCKS,
        extra_environment={"PYTHONPATH": str(fault_plugin.write(folder))},
    )
    with running_server(config, folder / "server.log") as handle:
        yield Client(handle.base_url)


def test_resume_equals_a_run_whose_chunk_ends_at_the_checkpoint(client: Client) -> None:
    document = tokens(704, seed=21)
    prompt = document[:DEPTH] + tokens(200, seed=22)
    client.flush()
    client.generate(document)
    captured = client.generate(prompt)
    client.flush()
    client.generate(document[:DEPTH])  # its prefill ends at the depth and stores that state
    divided = client.generate(prompt)
    assert captured.cached == divided.cached == DEPTH
    assert captured.distance(divided) == 0.0


def test_the_rounded_pool_is_not_bit_equal_to_an_undivided_run(client: Client) -> None:
    """The reason for the weaker promise: it would be wrong to claim more for this pool."""
    document = tokens(704, seed=23)
    prompt = document[:DEPTH] + tokens(200, seed=24)
    client.flush()
    client.generate(document)
    assert client.generate(prompt).distance(client.cold(prompt)) > 0.0


def test_zeroed_states_change_the_answer(ruined: Client) -> None:
    """Negative control: were the stored state wrong, warm would differ from cold.

    The tails are those of the exactness tests, where the bound is 0.
    """
    document = tokens(704, seed=25)
    for tail_tokens in (40, 200):
        prompt = document[:DEPTH] + tokens(tail_tokens, seed=tail_tokens)
        ruined.flush()
        ruined.generate(document)
        warm = ruined.generate(prompt)
        assert warm.cached == DEPTH
        assert warm.distance(ruined.cold(prompt)) > 1e-3
