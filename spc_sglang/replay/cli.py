"""`spc-sglang replay`: what would each policy have resumed on this trace? No GPU needed.

    spc-sglang replay --format mooncake conversation_trace.jsonl.gz --slots 256,1024

prints a table and, as the last line, one JSON object with `rows`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np

from spc_sglang.replay import pareto, report
from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.loaders import FORMATS, Source
from spc_sglang.replay.metrics import HEADER, Row, line, row
from spc_sglang.replay.model_bytes import SHAPES, ModelBytes, given, named
from spc_sglang.replay.simulator import Simulator
from spc_sglang.replay.trace import BLOCK_TOKENS, Trace


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status, 2 for bad input with one line that says what."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(words)
    try:
        policies, slots = _policies(arguments.policies), _slots(arguments.slots)
        _check_limits(arguments)
        model = _model(arguments)
        source = Source(tuple(arguments.paths), arguments.tokenizer, arguments.seed)
        requests = FORMATS[arguments.format](source)
        trace = Trace.of(islice(requests, arguments.limit))
        rows = _replay(trace, policies, slots, arguments.kv_tokens, model, quiet=arguments.json)
        about = _about(words, arguments, trace, model)
        if arguments.report is not None:
            print(f"report: {report.write(arguments.report, rows, about)}", file=sys.stderr)
    except (ValueError, OSError) as error:
        print(f"spc-sglang replay: {error}", file=sys.stderr)
        return 2
    fronts = pareto.as_json(rows)
    print(json.dumps({**about, "rows": [asdict(r) for r in rows], "pareto": fronts}))
    return 0


def _replay(
    trace: Trace,
    policies: list[str],
    slots: list[int],
    kv_tokens: int | None,
    model: ModelBytes | None,
    *,
    quiet: bool,
) -> list[Row]:
    rows: list[Row] = []
    if not quiet:
        print(HEADER)
    for pool in slots:
        for name in policies:
            _progress(len(rows), len(slots) * len(policies), f"{name} at {pool}")
            begin = time.perf_counter()
            simulator = Simulator(trace, CONTENDERS[name](pool, trace), kv_tokens)
            outcome = simulator.run()
            seconds = time.perf_counter() - begin
            resident = simulator.tree.num_resident * BLOCK_TOKENS
            rows.append(row(name, pool, outcome, seconds, kv_tokens=resident, model=model))
            if not quiet:
                print(line(rows[-1]), flush=True)
    _progress(1, 1, "done")
    return rows


def _progress(done: int, total: int, what: str) -> None:
    if sys.stderr.isatty():
        filled = 30 * done // total
        print(f"\r[{'#' * filled:<30}] {what:<30}", end="", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spc-sglang", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    replay = commands.add_parser("replay", help="replay a trace against cache policies")
    replay.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    replay.add_argument("--format", required=True, choices=sorted(FORMATS))
    replay.add_argument("--slots", default="16,64,256", help="state pool sizes, with commas")
    replay.add_argument("--policies", default="all", help="all, or names with commas")
    replay.add_argument("--kv-tokens", type=int, help="KV limit in tokens (none by default)")
    replay.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json (else bytes)")
    replay.add_argument("--limit", type=int, help="first N requests only")
    replay.add_argument("--seed", type=int, default=0, help="order of questions on documents")
    sizes = replay.add_mutually_exclusive_group()
    sizes.add_argument("--model", metavar="NAME", help=f"count bytes held: {', '.join(SHAPES)}")
    sizes.add_argument("--model-bytes", metavar="STATE,KV", help="bytes a checkpoint, a KV token")
    replay.add_argument("--report", type=Path, metavar="DIR", help="write an HTML page there")
    replay.add_argument("--json", action="store_true", help="the JSON line only")
    return parser


def _policies(chosen: str) -> list[str]:
    names = list(CONTENDERS) if chosen == "all" else chosen.split(",")
    for name in names:
        if name not in CONTENDERS:
            raise ValueError(f"policy {name!r}: use all or some of {', '.join(CONTENDERS)}")
    return names


def _slots(chosen: str) -> list[int]:
    try:
        sizes = [int(part) for part in chosen.split(",")]
    except ValueError:
        raise ValueError(f"slots {chosen!r}: need whole numbers with commas") from None
    if min(sizes) < 1:
        raise ValueError(f"slots {min(sizes)}: a pool needs at least 1")
    return sizes


def _model(arguments: argparse.Namespace) -> ModelBytes | None:
    if arguments.model is not None:
        return named(arguments.model)
    return None if arguments.model_bytes is None else given(arguments.model_bytes)


def _check_limits(arguments: argparse.Namespace) -> None:
    if arguments.limit is not None and arguments.limit < 1:
        raise ValueError(f"limit {arguments.limit}: need at least 1 request")
    if arguments.kv_tokens is not None and arguments.kv_tokens < BLOCK_TOKENS:
        raise ValueError(f"kv-tokens {arguments.kv_tokens}: need at least {BLOCK_TOKENS}")


def _about(
    words: list[str], arguments: argparse.Namespace, trace: Trace, model: ModelBytes | None
) -> dict[str, object]:
    return {
        "command": shlex.join(["spc-sglang", *words]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "format": arguments.format,
        "requests": len(trace),
        "kv_tokens": arguments.kv_tokens,
        "model": None if model is None else model.name,
        "model_bytes": None if model is None else asdict(model),
        "seed": arguments.seed,
        "block_tokens": BLOCK_TOKENS,
    }
