"""Our tree core does what SGLang's Python core does, on the same requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from spc_sglang.adapter.cpu.models import build_model
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang


def facts(which: str, kv_eviction: str) -> Any:
    model = build_model("qwen3_5", MODELS / "qwen3_5-float32")
    command = [
        sys.executable,
        "-m",
        "tests.adapter.tree_core_probe",
        which,
        str(model),
        kv_eviction,
    ]
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kv_eviction", ["lru", "lfu"])
def test_every_request_leaves_the_same_tree(kv_eviction: str) -> None:
    """Nodes, KV indices, states, leaves, free slots and tokens resumed, after each of 200."""
    ours, upstream = (facts(which, kv_eviction) for which in ("shorter", "upstream"))
    assert (ours["core"], upstream["core"]) == ("SpcTreeCore", "UnifiedTreeCore")
    assert len(ours["facts"]) == 200
    for number, (own, theirs) in enumerate(zip(ours["facts"], upstream["facts"], strict=True)):
        assert own == theirs, f"request {number}"
    assert sum(resumed > 0 for resumed, *_ in ours["facts"]) > 50
    assert ours["facts"][-1][-1] > 20  # checkpoints published inside paths
