"""Versions and hardware, for the head of a report."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("spc-sglang", "sglang", "torch", "numpy")


def format_header() -> str:
    """Two lines: versions, then the machine."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    cores = len(os.sched_getaffinity(0))
    return (
        f"versions: Python {platform.python_version()}, {versions}\n"
        f"hardware: {_cpu_model()}, {cores} cores, {_memory_gib():.0f} GiB, no GPU used, "
        f"load average {os.getloadavg()[0]:.1f} before the run"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
