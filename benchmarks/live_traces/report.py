"""The table and the JSON of all cells."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.live_traces.cells import CHUNK_TOKENS, SLOTS_OF_RUNNING, Cell
from benchmarks.live_traces.workload import Workload
from benchmarks.solver import cpu_model
from spc_sglang.replay.trace import BLOCK_TOKENS

LARGEST_GAP_POINTS = 1.5
HEADER = (
    "| trace | slots | stock % | spc % | simulator % | recomputed tokens: stock | spc "
    "| captures a request: spc | simulator | outputs that differ |\n" + "|---" * 10 + "|"
)


def describe(workload: Workload) -> str:
    """What was cut from the trace, for the head of the table."""
    cut = workload.cut
    return (
        f"{cut.format}: the first {len(workload)} requests; {cut.coarsen} blocks of the trace are "
        f"one block of {BLOCK_TOKENS} tokens, prompts are cut to {cut.most_blocks} of these; "
        f"{workload.prompt_tokens:,} prompt tokens, {sum(workload.reusable):,} KV-reusable, "
        f"longest prompt {workload.longest_prompt:,}"
    )


def line(cell: Cell) -> str:
    """One line under `HEADER`."""
    shares = (cell.stock_share, cell.spc_share, cell.simulated_share)
    return (
        f"| {cell.trace} | {cell.slots} | "
        + " | ".join(f"{100 * share:.1f}" for share in shares)
        + f" | {cell.stock_recomputed_tokens:,} | {cell.spc_recomputed_tokens:,}"
        + f" | {cell.spc_captures_per_request:.2f} | {cell.simulated_captures_per_request:.2f}"
        + f" | {cell.outputs_differ} |"
    )


def failures(cells: Sequence[Cell]) -> list[str]:
    """What misses the goal, one line each; better than the simulator is no miss."""
    found = []
    for cell in cells:
        where = f"{cell.trace} at {cell.slots}"
        if not cell.above_stock:
            found.append(f"{where}: not above stock")
        if cell.off_simulator < -LARGEST_GAP_POINTS:
            found.append(f"{where}: {-cell.off_simulator:.1f} points below the simulator")
        if cell.outputs_differ:
            found.append(f"{where}: {cell.outputs_differ} outputs differ")
    return found


def about() -> dict[str, Any]:
    """Versions, machine and the server's settings."""
    packages = ("sglang", "torch", "transformers")
    return {
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            **{name: version(name) for name in packages},
        },
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.system()},
        "model": "tiny random Qwen3.5 (3 gated-delta layers, 1 attention layer), fp32",
        "server": f"extra_buffer, page 1, chunks of {CHUNK_TOKENS} tokens, overlap schedule; "
        f"state pool = slots + {SLOTS_OF_RUNNING}; KV is never evicted for want of room",
    }


def as_json(workloads: Sequence[Workload], cells: Sequence[Cell], command: str) -> dict[str, Any]:
    """Everything in one object."""
    return {
        "command": command,
        **about(),
        "traces": {w.cut.format: asdict(w.cut) | {"header": describe(w)} for w in workloads},
        "goal_missed": failures(cells),
        "cells": [
            asdict(cell) | {"off_simulator_points": round(cell.off_simulator, 3)} for cell in cells
        ],
    }
