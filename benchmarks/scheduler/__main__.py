"""What the cache costs the scheduler thread a request: stock's Rust tree against ours.

    SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 python -m benchmarks.scheduler

Each cache runs in a process of its own, on the same requests, with SGLang's own requests, batches
and pools; only the forward is left out. A full state pool, page 1. Both check their trees and
slot accounts before and after the timing. Prints CPU time by step and ends with one JSON object,
also written to benchmarks/results/scheduler.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.live_traces.__main__ import MODEL
from benchmarks.solver import cpu_model
from spc_sglang.adapter.cpu.models import build_model

RESULT = Path(__file__).parents[1] / "results" / "scheduler.json"
STEPS = ("match", "plan", "insert", "publish", "evict")
MOST_RATIO = 1.25
MOST_EVICT_US = 100.0
POLICY_LIMITS_US = (1000.0, 5000.0)
"""Median and p99."""


def main() -> None:
    """Run both, compare, print and write."""
    options = _parser().parse_args()
    model = build_model("qwen3_5", MODEL)
    raw = {name: _work(name, model, options) for name in ("stock", "spc")}
    result = {
        "command": "python -m benchmarks.scheduler",
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("sglang", "torch", "numpy")},
        },
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        },
        "requests": options.requests,
        "slots": options.slots,
        **{name: _summary(found) for name, found in raw.items()},
    }
    result["goals"] = _goals(result["stock"], result["spc"])
    _print(result)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="timed requests")
    parser.add_argument("--slots", type=int, default=5600, help="states in the pool")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


def _work(name: str, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    arguments = [name, str(model), str(options.requests), str(options.slots)]
    command = [sys.executable, "-m", "benchmarks.scheduler.worker", *arguments]
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"WRONG: {name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    """Medians and 99th percentiles in microseconds."""
    parts = {part: _steps(found[part]) for part in ("usual", "long")}
    kept = ("tree_core", "filled_by_requests", "live_states", "garbage_collection_s")
    evict_one = _quantiles(found["evict_one"])
    return {**{name: found[name] for name in kept}, **parts, "evict_one": evict_one}


def _steps(part: dict[str, Any]) -> dict[str, Any]:
    rows = part["steps"]
    names = (*STEPS, "rest", "KV free list")
    table = {name: _quantiles([row.get(name, 0.0) for row in rows]) for name in names}
    table["sum"] = _quantiles([sum(row.get(name, 0.0) for name in STEPS) for row in rows])
    table["policy"] = _quantiles(part["policy"])
    return {"requests": len(rows), "resumed_tokens": part["resumed_tokens"], "us": table}


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(median(ordered), 1),
        "mean": round(sum(ordered) / len(ordered), 1),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
    }


def _goals(stock: dict[str, Any], spc: dict[str, Any]) -> dict[str, Any]:
    ratio = spc["usual"]["us"]["sum"]["median"] / stock["usual"]["us"]["sum"]["median"]
    policy = [spc[part]["us"]["policy"] for part in ("usual", "long")]
    most_median, most_p99 = POLICY_LIMITS_US
    return {
        "sum_over_stock": round(ratio, 2),
        "sum_at_most_1.25_of_stock": ratio <= MOST_RATIO,
        "evict_one_under_100_us": spc["evict_one"]["median"] < MOST_EVICT_US,
        "policy_within_1_ms_and_5_ms": all(
            row["median"] <= most_median and row["p99"] <= most_p99 for row in policy
        ),
    }


def _print(result: dict[str, Any]) -> None:
    print(f"# {result['versions']}, {result['machine']}; checks passed")
    print(f"# {result['slots']} slots, {result['requests']} requests, CPU microseconds")
    for name in ("stock", "spc"):
        found = result[name]
        print(
            f"# {name}: {found['tree_core']}, {found['live_states']} live states, "
            f"one garbage collection {1e3 * found['garbage_collection_s']:.0f} ms"
        )
    print("| requests | step | stock median | p99 | spc median | p99 |" + "\n" + "|---" * 6 + "|")
    for part, label in (("usual", "up to 4k tokens"), ("long", "131k tokens")):
        stock, spc = (result[name][part]["us"] for name in ("stock", "spc"))
        for step in stock:
            _row(label, step, stock[step], spc[step])
    _row("", "one state evicted", result["stock"]["evict_one"], result["spc"]["evict_one"])
    print(f"goals: {result['goals']}")


def _row(label: str, step: str, stock: dict[str, float], spc: dict[str, float]) -> None:
    cells = (stock["median"], stock["p99"], spc["median"], spc["p99"])
    print(f"| {label} | {step} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
