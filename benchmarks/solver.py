"""Speed of the placement and planning solvers; checks them against enumeration first.

    OMP_NUM_THREADS=1 python benchmarks/solver.py [--runs 15] [--output FILE]

Prints a Markdown table and, as the last line, one JSON object, also written to
benchmarks/results/solver.json. A wrong result stops it before any time is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

from spc_sglang.placement import OverlapWeights, engine, place, replay
from spc_sglang.planning import PrefixTree, allocate, plan_tree, tree_replay
from spc_sglang.planning.penalised import PenalisedTree

RESULT = Path(__file__).parent / "results" / "solver.json"


@dataclass(frozen=True)
class Row:
    """One line of the table; medians in milliseconds, on the clock and of CPU time."""

    name: str
    build: str
    median_ms: float
    cpu_ms: float
    target_ms: float | None


def check_prefix(cases: int) -> None:
    """Both methods, every budget, against all subsets of the observed depths."""
    rng = np.random.default_rng(0)
    for _ in range(cases):
        dense = rng.integers(0, 5, int(rng.integers(1, 9))).astype(float)
        dense[-1] += 1
        weights = OverlapWeights.from_dense(dense)
        depths = weights.depths.tolist()
        for budget in range(len(depths) + 1):
            best = min(replay(weights, chosen) for chosen in combinations(depths, budget))
            for method in ("hull", "price"):
                got = place(weights, budget, method=method).replay
                if got != best:
                    sys.exit(f"WRONG: {method} gave {got}, not {best}: {dense.tolist()}, {budget}")


def check_tree(cases: int) -> None:
    """The penalised solver against all subsets, and bounds against the exact DP."""
    rng = np.random.default_rng(1)
    for _ in range(cases):
        tree = random_tree(rng, int(rng.integers(2, 8)), reach=0, step=6)
        price = float(rng.integers(0, 12))
        best = min(
            tree_replay(tree, chosen) + price * count
            for count in range(tree.size)
            for chosen in combinations(range(1, tree.size), count)
        )
        nodes = PenalisedTree(tree).solve(price)
        got = tree_replay(tree, nodes) + price * len(nodes)
        plan, exact = (plan_tree(tree, 2, method=method) for method in ("price", "exact"))
        if abs(got - best) > 1e-9 or plan.lower_bound > exact.replay * (1 + 1e-12):
            sys.exit(f"WRONG: {got} not {best}, or {plan} against {exact}: {tree}, {price}")


def random_tree(rng: np.random.Generator, size: int, *, reach: int, step: int) -> PrefixTree:
    """Parents at most `reach` numbers back (0: anywhere); whole weights 0..9."""
    parents, depths = [-1], [0]
    for node in range(1, size):
        parent = int(rng.integers(max(0, node - reach) if reach else 0, node))
        parents.append(parent)
        depths.append(depths[parent] + int(rng.integers(1, step + 1)))
    return PrefixTree(parents, depths, rng.integers(0, 10, size).tolist())


def random_prefix(size: int) -> OverlapWeights:
    """`size` observed depths, uniform over 8 * size tokens, exponential weights."""
    rng = np.random.default_rng(size)
    depths = rng.choice(8 * size, size, replace=False) + 1
    return OverlapWeights(depths, rng.exponential(size=size))


def timed(
    name: str, build: str, call: Callable[[], object], runs: int, target_ms: float | None = None
) -> Row:
    """Medians of `runs` calls after one that is not counted."""
    call()
    clock, cpu = [], []
    for _ in range(runs):
        start, cpu_start = time.perf_counter(), time.process_time()
        call()
        cpu.append((time.process_time() - cpu_start) * 1e3)
        clock.append((time.perf_counter() - start) * 1e3)
    return Row(name, build, round(median(clock), 3), round(median(cpu), 3), target_ms)


def prefix_rows(runs: int, with_numba: bool) -> list[Row]:
    """One prefix, M = 64, with and without Numba; the checkpoints must be the same."""
    rows = []
    for size, plain_target, compiled_target in ((2048, 60.0, 2.0), (131_072, None, 200.0)):
        weights = random_prefix(size)
        name = f"one prefix, n = {size:,}, M = 64"
        engine.cool_down()
        plain = place(weights, 64)
        few = runs if size < 10_000 else 3
        rows.append(timed(name, "NumPy", lambda w=weights: place(w, 64), few, plain_target))
        if not with_numba:
            continue
        engine.warm_up()
        if place(weights, 64) != plain:
            sys.exit(f"WRONG: Numba and NumPy differ at n = {size}")
        rows.append(timed(name, "Numba", lambda w=weights: place(w, 64), runs, compiled_target))
    engine.cool_down()
    weights = random_prefix(2048)
    hull = timed(
        "same, layered reference, n = 2,048",
        "NumPy",
        lambda: place(weights, 64, method="hull"),
        3,
    )
    return [*rows, hull]


def planning_rows(runs: int, with_numba: bool) -> list[Row]:
    """Trees of 10,000 nodes and one budget over 1,000 entries."""
    rng = np.random.default_rng(2)
    rows = []
    for kind, reach in (("bushy", 0), ("agent sessions", 50), ("long chains", 2)):
        tree = random_tree(rng, 10_000, reach=reach, step=300)
        solver = PenalisedTree(tree)
        for price in (300.0, 10_000.0):
            name = f"tree of 10,000 nodes, {kind}, price {price:,.0f}"
            rows.append(timed(name, "Python", lambda s=solver, p=price: s.solve(p), runs, 50.0))
        name = f"whole plan, {kind}, M = 500"
        plan = plan_tree(tree, 500, method="price")
        gap = plan.replay / plan.lower_bound - 1
        name += f" (proven gap {gap:.4%})"
        rows.append(timed(name, "Python", lambda t=tree: plan_tree(t, 500, method="price"), 3))
    entries = [random_prefix(50 + i % 20).scaled(1 + i % 7) for i in range(1000)]
    if with_numba:
        engine.warm_up()
    build = "Numba" if with_numba else "NumPy"
    rows.append(
        timed("1,000 entries, 4,000 slots, jointly", build, lambda: allocate(entries, 4000), 3)
    )
    engine.cool_down()
    return rows


def cpu_model() -> str:
    """The processor's name, without anything that names the machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions(with_numba: bool) -> dict[str, str]:
    found = {"python": platform.python_version(), "numpy": np.__version__}
    if with_numba:
        import numba

        found["numba"] = numba.__version__
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="timed calls per line")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    options = parser.parse_args()

    start = time.perf_counter()
    with_numba = engine.warm_up()
    warm_up_ms = (time.perf_counter() - start) * 1e3
    check_prefix(300)
    engine.cool_down()
    check_prefix(300)
    check_tree(300)

    machine = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(f"# {versions(with_numba)}, {machine}; checks passed; median of {options.runs} runs")
    rows = prefix_rows(options.runs, with_numba) + planning_rows(options.runs, with_numba)
    print("| what | build | median ms | CPU ms | target ms |\n|---|---|---|---|---|")
    for row in rows:
        target = "" if row.target_ms is None else f"{row.target_ms:g}"
        print(f"| {row.name} | {row.build} | {row.median_ms:.2f} | {row.cpu_ms:.2f} | {target} |")
    result = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/solver.py",
        "versions": versions(with_numba),
        "machine": machine,
        "runs": options.runs,
        "warm_up_ms": round(warm_up_ms, 1),
        "targets_met": all(r.target_ms is None or r.median_ms <= r.target_ms for r in rows),
        "rows": [asdict(row) for row in rows],
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
