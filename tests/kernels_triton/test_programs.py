"""The GPU benchmark as far as a CPU carries it, and the example without SGLang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sglang.kernels.ops.attention.fla import chunk_delta_h, op

from benchmarks.kernels import Shape, spread, verify
from spc_sglang.kernels.interpreter import adapt
from tests.limits import HANG_LIMIT_S

adapt(chunk_delta_h, op)

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_LIMIT_S
    )


def test_the_checks_of_the_benchmark_pass() -> None:
    """The same code as on a GPU, interpreted, at a smaller shape."""
    verdicts = dict(verify(Shape(tokens=200, heads=2, key_heads=1), torch.device("cpu")))
    assert len(verdicts) == 5 and all(verdicts.values()), verdicts


def test_spread_plans_lie_on_the_grid() -> None:
    plan = spread(3, 8192, torch.device("cpu"))
    assert plan.chunk.tolist() == [32, 64, 96, -1] and plan.slot.tolist() == [1, 2, 3, -1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, see the test below")
def test_without_a_gpu_the_benchmark_refuses() -> None:
    done = run("benchmarks.kernels")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.endswith("needs a CUDA device: nothing was measured\n"), done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_benchmark_on_a_gpu() -> None:
    done = run("benchmarks.kernels")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["state_pass_target_met"]


def test_example_resumes_exactly() -> None:
    done = run("examples.checkpointed_fla", "--document-tokens", "128", "--questions", "1")
    assert done.returncode == 0, done.stderr
    assert "checkpoints at [64, 128]" in done.stdout
    assert done.stdout.endswith("differs by 0.0\n") or torch.cuda.is_available()
