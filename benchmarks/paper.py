"""The tables and figures of arXiv 2605.05219, redone, and each claim against what came out.

    OMP_NUM_THREADS=1 python -m benchmarks.paper [--quality FILE...] [--narrativeqa DIR]
        [--prompts FILE...] [--tokenizer DIR] [--with-synthetic] [--report DIR]

A data set without a path is replaced by a synthetic one of its shape, and named so;
`--with-synthetic` adds those of the others. Prints Markdown tables and, as the last line, one JSON
object, also written to benchmarks/results/paper.json. `--report` adds a page with the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.published import claims, drift, examples, laws, page, serving
from benchmarks.published.datasets import Dataset, from_files, synthetic
from benchmarks.published.entries import law_of, matches
from benchmarks.solver import cpu_model
from spc_sglang.placement import OverlapWeights, engine

RESULT = Path(__file__).parent / "results" / "paper.json"
FLAGS = {"quality": "QuALITY", "narrativeqa": "NarrativeQA", "prompts": "System prompts"}
BLOCK_SIZES = (128, 256, 512, 1024, 2048, 4096)
PROMPT_BUDGET, NUM_PROMPTS = 4, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status, 2 for bad input with one line that says what."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(given)
    compiled = engine.warm_up()
    try:
        datasets = list(_datasets(arguments))
        tables, found_laws = _tables(datasets, arguments)
    except (ValueError, OSError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2
    about = _about(arguments, compiled)
    print(f"# {about['command']}\n# {about['versions']}, {about['machine']}\n")
    for title, rows in tables.items():
        print(page.markdown(TITLES[title], rows), flush=True)
    if arguments.report is not None:
        written = page.write(arguments.report, str(about["command"]), tables, found_laws)
        print(f"report: {written}", file=sys.stderr)
    result = about | {name: [asdict(row) for row in rows] for name, rows in tables.items()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(_a_row_a_line(result), encoding="utf-8")
    print(json.dumps(result))
    return 0


def _a_row_a_line(result: dict[str, Any]) -> str:
    """JSON in which each table's rows are lines."""
    parts = []
    for name, value in result.items():
        text = json.dumps(value)
        if name in TITLES:
            text = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


TITLES = {
    "claims": "Claims, and what came out here",
    "laws": "Overlap laws",
    "factors": "Reduction factor on the law, one prefix as long as its deepest overlap",
    "blocks": "Checkpoints that match block caching",
    "entries": "Last K entries, every request in order",
    "front": "Pareto front over checkpoints an entry, at the largest K",
    "prompts": "Placements on the prompts that most requests share",
    "drift": "Drift, mean replay over that of the DP that knows the law",
    "examples": "Laws with known answers",
    "regret": "What a learnt law costs: two Gaussians on 2,000 tokens",
}


def _tables(
    datasets: Sequence[Dataset], arguments: argparse.Namespace
) -> tuple[dict[str, Sequence[Any]], dict[str, OverlapWeights]]:
    """All tables by name, and the law of each data set."""
    tables: dict[str, list[Any]] = {name: [] for name in TITLES}
    found_laws: dict[str, OverlapWeights] = {}
    for dataset in datasets:
        for entries in arguments.entries:
            found = matches(dataset.prompts, entries)
            if not found:
                raise ValueError(f"{dataset.label}: no request matches any of {entries} before it")
            rows = serving.entry_rows(dataset, found, entries, arguments.budgets)
            tables["entries"] += rows
        # what follows is at the largest K, whose rows are the last ones
        law = found_laws[dataset.label] = law_of(found)
        tables["front"] += serving.front(rows)
        tables["laws"].append(laws.law_row(dataset, found))
        tables["factors"] += laws.factor_rows(dataset.label, law, arguments.budgets)
        tables["blocks"] += laws.block_rows(dataset.label, law, BLOCK_SIZES)
        tables["prompts"] += laws.prompt_rows(dataset, law, PROMPT_BUDGET, NUM_PROMPTS)
    tables["drift"] = drift.drift_rows(arguments.drift_requests)
    tables["examples"] = examples.example_rows()
    tables["regret"] = examples.regret_rows(500, (1, 4, 16, 64), arguments.seeds)
    tables["claims"] = [
        claims.two_gaussian_claim(tables["examples"]),
        claims.known_law_claim(tables["factors"]),
        claims.learnt_law_claim(tables["entries"]),
        claims.block_claim(tables["blocks"]),
        *claims.low_budget_claims(tables["factors"]),
        claims.balanced_claim(),
        claims.exchange_claim(),
        claims.stability_claim(),
        claims.replaced_sample_claim(),
        claims.coordinate_claim(tables["entries"]),
        *claims.drift_claims(tables["drift"]),
    ]
    return dict(tables), found_laws


def _datasets(arguments: argparse.Namespace) -> Iterator[Dataset]:
    limit, seed = arguments.limit, arguments.seed
    for flag, name in FLAGS.items():
        paths = getattr(arguments, flag)
        if paths:
            yield from_files(name, paths, arguments.tokenizer, limit, seed)
        if not paths or arguments.with_synthetic:
            yield synthetic(name, limit, seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, name in FLAGS.items():
        parser.add_argument(
            f"--{flag}", nargs="+", type=Path, help=f"{name}: files as replay reads"
        )
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json (else bytes)")
    parser.add_argument("--with-synthetic", action="store_true", help="synthetic ones as well")
    parser.add_argument("--limit", type=int, default=1200, help="first requests of each data set")
    parser.add_argument("--entries", type=page.numbers, default=(1, 8, 64), help="K, with commas")
    parser.add_argument("--budgets", type=page.numbers, default=(1, 2, 4, 8, 16, 32), help="M")
    parser.add_argument("--drift-requests", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=40, help="draws for the learnt law")
    parser.add_argument("--seed", type=int, default=0, help="order of requests, synthetic text")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write a page with figures")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


def _about(arguments: argparse.Namespace, compiled: bool) -> dict[str, object]:
    """The command with the last part of each path only."""
    words = ["OMP_NUM_THREADS=1 python -m benchmarks.paper"]
    for flag in FLAGS:
        if paths := getattr(arguments, flag):
            words.append(f"--{flag} {' '.join(path.name for path in paths)}")
    if arguments.tokenizer is not None:
        words.append(f"--tokenizer {arguments.tokenizer.name}")
    if arguments.with_synthetic:
        words.append("--with-synthetic")
    for flag in ("limit", "drift_requests", "seeds", "seed"):
        words.append(f"--{flag.replace('_', '-')} {getattr(arguments, flag)}")
    for flag in ("entries", "budgets"):
        words.append(f"--{flag} {','.join(map(str, getattr(arguments, flag)))}")
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    if compiled:
        import numba

        versions["numba"] = numba.__version__
    return {
        "command": " ".join(words),
        "versions": versions,
        "machine": f"{cpu_model()}, {os.cpu_count()} cores",
        "tokens": "bytes" if arguments.tokenizer is None else arguments.tokenizer.name,
        "without_real_data": [FLAGS[flag] for flag in FLAGS if not getattr(arguments, flag)],
    }


if __name__ == "__main__":
    raise SystemExit(main())
