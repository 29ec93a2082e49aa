"""Drive live CPU servers with public traces: stock, ours, and the simulator's figure.

    python -m benchmarks.live_traces --trace mooncake=conversation_trace.jsonl.gz \
        --trace weka=SESSIONS --trace prompts=revisions.jsonl.gz

Every request asks for one token, one after the other. Prints, by trace and pool size, the share
of KV-reusable tokens that were resumed; checks that both servers answer alike; ends with one JSON
object, also written to benchmarks/results/live_traces.json. Exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.live_traces import cells, report
from benchmarks.live_traces.workload import CUTS, Cut, load
from spc_sglang.adapter.cpu.models import build_model

RESULT = Path(__file__).parents[1] / "results" / "live_traces.json"
MODEL = Path(__file__).parents[2] / ".cache" / "models" / "qwen3_5-float32"


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cells; returns the exit status."""
    arguments = _parser().parse_args(argv)
    model = build_model("qwen3_5", MODEL)
    workloads = [load(_cut(name, arguments), paths) for name, paths in arguments.trace]
    about = report.about()
    print(f"# {about['versions']}, {about['machine']}\n# {about['model']}; {about['server']}")
    for workload in workloads:
        print(f"# {report.describe(workload)}")
    print(report.HEADER, flush=True)
    done = []
    with tempfile.TemporaryDirectory() as logs:
        for workload in workloads:
            for slots in workload.cut.slots:
                done.append(cells.run(workload, slots, model, Path(logs)))
                print(report.line(done[-1]), flush=True)
    for failure in report.failures(done):
        print(f"MISSED: {failure}")
    result = report.as_json(workloads, done, _command(arguments))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 1 if result["goal_missed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trace",
        action="append",
        required=True,
        type=_trace,
        metavar="FORMAT=PATH[,PATH]",
        help=f"a trace in one of the formats {', '.join(CUTS)}; repeat for more",
    )
    parser.add_argument("--limit", type=int, help="first so many requests of each trace")
    parser.add_argument("--slots", type=_sizes, help="pool sizes, with commas")
    parser.add_argument("--coarsen", type=int, help="blocks of a trace that become one")
    parser.add_argument("--blocks", type=int, help="most blocks a prompt, after coarsening")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


def _trace(text: str) -> tuple[str, tuple[Path, ...]]:
    name, _, paths = text.partition("=")
    if name not in CUTS or not paths:
        raise argparse.ArgumentTypeError(f"{text!r}: need FORMAT=PATH, FORMAT of {list(CUTS)}")
    return name, tuple(map(Path, paths.split(",")))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _cut(name: str, arguments: argparse.Namespace) -> Cut:
    chosen = {
        "limit": arguments.limit,
        "slots": arguments.slots,
        "coarsen": arguments.coarsen,
        "most_blocks": arguments.blocks,
    }
    return replace(CUTS[name], **{k: v for k, v in chosen.items() if v is not None})


def _command(arguments: argparse.Namespace) -> str:
    """The command with the last part of each path only."""
    words = ["python -m benchmarks.live_traces"]
    for name, paths in arguments.trace:
        words.append(f"--trace {name}={','.join(path.name for path in paths)}")
    for flag in ("limit", "coarsen", "blocks"):
        if getattr(arguments, flag) is not None:
            words.append(f"--{flag} {getattr(arguments, flag)}")
    if arguments.slots is not None:
        words.append(f"--slots {','.join(map(str, arguments.slots))}")
    return " ".join(words)


if __name__ == "__main__":
    raise SystemExit(main())
