"""Two tensor-parallel ranks take the same decisions, and learned statistics survive a restart.

SGLang's own consensus checker compares every match, insert and eviction of the two ranks: their
order, arguments and results.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, ServerStartError, running_server
from tests.server import scenarios
from tests.server.client import Client
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang


def test_two_ranks_decide_alike(tmp_path: Path) -> None:
    """A crowded pool with evictions by value, hang-ups and hits, under the consensus checker."""
    state = tmp_path / "learned.json"
    config = CpuServerConfig(
        build_model("qwen3_5", MODELS / "qwen3_5-float32"),
        max_mamba_cache_size=24,
        radix_cache_backend="spc",
        extra_arguments=("--tp-size", "2", "--spc-state", str(state)),
        extra_environment={
            "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
            "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
        },
    )
    log_path = tmp_path / "server.log"
    with running_server(config, log_path) as handle:
        client = Client(handle.base_url)
        scenarios.warm_equals_cold(client, scenarios.Bounds(5e-5), spacing=256)
        scenarios.crowded_pool(client, scenarios.Bounds(), prompts=12)
        scenarios.accounts_are_balanced(client)
        report = client.report()
        client.flush()
        assert handle.process.poll() is None
    assert report["published"] > 0
    assert "Rank consensus checker is enabled" in log_path.read_text()
    assert json.loads(state.read_text())["observations"]["requests"] > 0


def test_a_damaged_state_file_stops_the_start(tmp_path: Path) -> None:
    """The log ends with one sentence that names the file and the remedy."""
    state = tmp_path / "learned.json"
    state.write_text("{half a fi")
    config = CpuServerConfig(
        build_model("qwen3_5", MODELS / "qwen3_5-float32"),
        radix_cache_backend="spc",
        extra_arguments=("--spc-state", str(state)),
    )
    with (
        pytest.raises(ServerStartError),
        running_server(config, tmp_path / "server.log"),
    ):
        pass
    assert f"{state}: damaged statistics" in (tmp_path / "server.log").read_text()
