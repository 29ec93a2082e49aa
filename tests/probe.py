"""Runs a module in a process of its own, on the CPU engine; its last line is one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.limits import HANG_LIMIT_S

ROOT = Path(__file__).resolve().parents[1]


def facts(module: str, *arguments: str) -> Any:
    """What the module printed last; AssertionError with its complaints if it failed."""
    environment = {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=HANG_LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
