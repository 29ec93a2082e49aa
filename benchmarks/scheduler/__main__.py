"""What the cache costs the scheduler thread a request: stock's Rust tree against ours.

    SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 python -m benchmarks.scheduler

Each cache lives in a process of its own, on the same requests, with SGLang's own requests, batches
and pools; only the forward is left out. A full state pool, page 1. The two take turns, so that
both see the same noise; ratios are medians over the rounds. Both check their trees and slot
accounts around every turn. Prints CPU time by step and ends with one JSON object, also written
to benchmarks/results/scheduler.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import IO, Any

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
    raw = _in_turns(model, options)
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
        "rounds": options.rounds,
        "slots": options.slots,
        **{name: _summary(found) for name, found in raw.items()},
    }
    ratios = _ratios(raw["stock"]["usual"], raw["spc"]["usual"])
    result["sum_over_stock"] = {"median": median(ratios), "least": min(ratios), "most": max(ratios)}
    result["goals"] = _goals(result["spc"], median(ratios))
    _print(result)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="timed requests")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each of the two")
    parser.add_argument("--slots", type=int, default=5600, help="states in the pool")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


@dataclass(frozen=True, slots=True)
class _Worker:
    """One of the two processes."""

    name: str
    process: subprocess.Popen[str]
    errors: IO[str]

    def answer(self) -> dict[str, Any]:
        """The next JSON line; exits with the worker's complaints if it ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        self.errors.seek(0)
        sys.exit(f"WRONG: {self.name} ended:\n{self.errors.read()[-3000:]}")

    def measure(self, part: str, count: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(part, count, file=self.process.stdin, flush=True)
        return self.answer()


@contextmanager
def _worker(name: str, model: Path, slots: int) -> Iterator[_Worker]:
    module = "benchmarks.scheduler.worker"
    command = [sys.executable, "-m", module, name, str(model), str(slots)]
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment
        ) as process,
    ):
        yield _Worker(name, process, errors)


def _in_turns(model: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each of the two found: facts about its start, and by part one answer a round."""
    parts = {
        "usual": options.requests,
        "policy": options.requests,
        "evict_one": options.requests // 2,
        "long": options.requests // 20,
        "long_policy": options.requests // 20,
    }
    names = ("stock", "spc")
    with ExitStack() as stack:
        workers = {n: stack.enter_context(_worker(n, model, options.slots)) for n in names}
        found: dict[str, dict[str, Any]] = {n: worker.answer() for n, worker in workers.items()}
        served = max(one["filled_by_requests"] for one in found.values())
        for name in names:
            found[name].update(workers[name].measure("begin", served))
        for part, requests in parts.items():
            for one in range(options.rounds):
                for name in names if one % 2 else names[::-1]:
                    answer = workers[name].measure(part, max(1, requests // options.rounds))
                    found[name].setdefault(part, []).append(answer)
    return found


def _ratios(stock: list[dict[str, Any]], spc: list[dict[str, Any]]) -> list[float]:
    """Our median sum over stock's, by round."""
    medians = ([median(map(_sum, one["rows"])) for one in rounds] for rounds in (spc, stock))
    return [round(ours / theirs, 3) for ours, theirs in zip(*medians, strict=True)]


def _sum(row: dict[str, float]) -> float:
    return sum(row.get(name, 0.0) for name in STEPS)


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    """Medians and 99th percentiles in microseconds."""
    kept = ("tree_core", "filled_by_requests", "served", "live_states", "garbage_collection_s")
    parts = {
        part: _steps(found[part], _rows(found[policy]))
        for part, policy in (("usual", "policy"), ("long", "long_policy"))
    }
    evict_one = _quantiles([row["evict"] for row in _rows(found["evict_one"])])
    return {**{name: found[name] for name in kept}, **parts, "evict_one": evict_one}


def _rows(rounds: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [row for one in rounds for row in one["rows"]]


def _steps(rounds: list[dict[str, Any]], policy: list[dict[str, float]]) -> dict[str, Any]:
    rows = _rows(rounds)
    names = (*STEPS, "rest", "KV free list")
    table = {name: _quantiles([row.get(name, 0.0) for row in rows]) for name in names}
    table["sum"] = _quantiles([_sum(row) for row in rows])
    table["policy"] = _quantiles([row["policy"] for row in policy])
    resumed = sum(one["resumed_tokens"] for one in rounds)
    return {"requests": len(rows), "resumed_tokens": resumed, "us": table}


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(median(ordered), 1),
        "mean": round(sum(ordered) / len(ordered), 1),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
    }


def _goals(spc: dict[str, Any], ratio: float) -> dict[str, Any]:
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
    print(f"sum over stock: {result['sum_over_stock']}; goals: {result['goals']}")


def _row(label: str, step: str, stock: dict[str, float], spc: dict[str, float]) -> None:
    cells = (stock["median"], stock["p99"], spc["median"], spc["p99"])
    print(f"| {label} | {step} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
