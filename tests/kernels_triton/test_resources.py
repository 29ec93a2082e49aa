"""Every kernel compiles for three GPU generations without spilling; no GPU is needed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG_LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"sm_80": 80, "sm_90a": 90, "sm_100a": 100}


@pytest.fixture(scope="module")
def report() -> tuple[int, list[dict[str, object]]]:
    """Exit status and rows of the resource table, made in a process that does not interpret."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "benchmarks.kernel_resources"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_LIMIT_S
    )
    assert done.stdout, done.stderr
    print(done.stdout.rpartition("\n{")[0])
    return done.returncode, json.loads(done.stdout.splitlines()[-1])["resources"]


@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_spills(report: tuple[int, list[dict[str, object]]], target: str) -> None:
    """No spills, and registers and shared memory within what the GPU has."""
    from benchmarks.kernel_resources import CONTROL, MAX_REGISTERS, SHARED_BYTES

    status, rows = report
    kernels = [row for row in rows if row["target"] == target and row["variant"] != CONTROL]
    assert status == 0 and len(kernels) == 11
    for row in kernels:
        assert row["spill_stores"] == row["spill_loads"] == 0, row
        assert row["registers"] <= MAX_REGISTERS, row
        assert row["shared"] <= SHARED_BYTES[TARGETS[target]], row
        assert row["instructions"] > 100, row


@pytest.mark.parametrize("target", TARGETS)
def test_the_control_spills(report: tuple[int, list[dict[str, object]]], target: str) -> None:
    """Four times the value columns cannot stay in registers, and the same report says so."""
    from benchmarks.kernel_resources import CONTROL

    (control,) = [row for row in report[1] if row["target"] == target and row["variant"] == CONTROL]
    assert control["spill_stores"] > 0 and control["spill_loads"] > 0
