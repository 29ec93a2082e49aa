"""Wall clock of one layer group: what a restored checkpoint saves, and what placement adds.

    OMP_NUM_THREADS=1 python -m benchmarks.layer_group [--device cpu] [--length 1024] [--runs 5]

One attention and three gated-delta layers at the Qwen3.5-0.8B shape, in PyTorch (the twins under
kernels/), so the times are those of the twins and not of a GPU kernel. First resumed outputs are
compared with the uncut run, with zeroed and misplaced states as negative controls; a wrong one
stops it before any time is taken. Prints Markdown tables and, as the last line, one JSON object,
also written to benchmarks/results/layer_group.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.hybrid_group import CHUNK_TOKENS, Checkpoint, GroupShape, LayerGroup, Prefilled
from benchmarks.published import page
from benchmarks.published.examples import two_gaussians
from benchmarks.published.placements import depths_for
from benchmarks.solver import cpu_model
from spc_sglang.placement import OverlapWeights, place, restore_depths

RESULT = Path(__file__).parent / "results" / "layer_group.json"
# on rows whose mean square is about one; a wrong state is off by far more
TOLERANCE = 2e-4
CONTROL_FACTOR = 20
NUM_OVERLAPS = 8
Pair = tuple[int, int]
Key = TypeVar("Key", bound=Hashable)
PLACEMENTS = ("dp", "balanced", "block", "sqrt", "log")


@dataclass(frozen=True)
class Exactness:
    """Largest difference to the uncut run over all resumed rows; a control must be far off."""

    resumed: float
    bit_equal: bool
    zeroed_state: float
    wrong_depth: float


@dataclass(frozen=True)
class TimeRow:
    """Recomputing the last tokens of a prefix: medians on the clock and of this process's CPU.

    On a shared CPU the second one is the steadier; on a GPU it is that of the launches.
    """

    recomputed_tokens: int
    median_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Fit:
    """Time = fixed_ms + ms_per_token * tokens, least squares over the medians."""

    of: str
    fixed_ms: float
    ms_per_token: float
    r_squared: float


@dataclass(frozen=True)
class RestoreRow:
    """Copying one checkpoint of the group from host memory into a slot on the device."""

    checkpoint_bytes: int
    median_ms: float
    worth_tokens: float
    """Tokens that could be recomputed in that time, by the fit's slope."""


@dataclass(frozen=True)
class PlacementRow:
    """Mean over the overlaps of a restore and the recomputing up to the overlap."""

    placement: str
    budget: int
    checkpoints: int
    mean_recomputed_tokens: float
    mean_ms: float
    mean_cpu_ms: float
    speedup: float
    """Over no checkpoint at all, on the clock."""
    cpu_speedup: float


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status, 1 if a resumed output is wrong."""
    arguments = _parser().parse_args(argv)
    bench = Bench(
        arguments.length, torch.device(arguments.device), arguments.runs, _shape(arguments)
    )
    about = _about(arguments)
    print(f"# {about['command']}\n# {about['versions']}, {about['machine']}")
    exactness = bench.exactness()
    print(f"# {exactness}")
    if message := wrong(exactness):
        print(f"WRONG: {message}", file=sys.stderr)
        return 1
    tables = {}
    for name, rows in bench.tables(arguments.budgets):
        print(page.markdown(name, rows, str), flush=True)
        tables[name] = rows
    result = about | {"exactness": asdict(exactness)}
    result |= {name: [asdict(row) for row in rows] for name, rows in tables.items()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 0


class Bench:
    """One group, one prefix of `length` tokens computed uncut, and its checkpoints."""

    def __init__(
        self, length: int, device: torch.device, runs: int, shape: GroupShape | None = None
    ) -> None:
        if length < 4 * CHUNK_TOKENS or length % CHUNK_TOKENS:
            raise ValueError(f"length {length}: need a multiple of {CHUNK_TOKENS}, 4 at least")
        self.length, self.device, self.runs = length, device, runs
        self.group = LayerGroup(shape or GroupShape(), device)
        generator = torch.Generator().manual_seed(1)
        hidden = torch.randn(length, self.group.shape.hidden_size, generator=generator)
        self.hidden = hidden.to(device)
        self.grid = tuple(range(CHUNK_TOKENS, length, CHUNK_TOKENS))
        self.whole = self.group.prefill(self.hidden, capture=self.grid)
        # as a server would keep them out of the way of the device
        self.stored = {
            depth: Checkpoint(*(self._host(part) for part in checkpoint))
            for depth, checkpoint in self.whole.checkpoints.items()
        }

    def resume(self, depth: int, end: int, checkpoint: Checkpoint | None = None) -> Prefilled:
        """Restore the checkpoint at `depth` (0: the root) and compute up to `end`."""
        if depth == 0:
            return self.group.prefill(self.hidden[:end])
        start = self.restore(self.stored[depth] if checkpoint is None else checkpoint)
        kv = (self.whole.kv[0][:depth], self.whole.kv[1][:depth])
        return self.group.prefill(self.hidden[depth:end], kv, start)

    def restore(self, checkpoint: Checkpoint) -> Checkpoint:
        """A copy on the device."""
        return Checkpoint(*(part.to(self.device, copy=True) for part in checkpoint))

    def exactness(self) -> Exactness:
        """From the first, a middle and the last grid position; controls from the middle."""
        middle = self.grid[len(self.grid) // 2]
        worst, equal = 0.0, True
        for depth in (self.grid[0], middle, self.grid[-1]):
            found, expected = self.resume(depth, self.length).output, self.whole.output[depth:]
            worst = max(worst, _difference(found, expected))
            equal = equal and torch.equal(found, expected)
        right = self.stored[middle]
        zeroed = Checkpoint(torch.zeros_like(right.states), right.windows)
        other = self.stored[self.grid[len(self.grid) // 2 - 1]]
        expected = self.whole.output[middle:]
        off = [
            _difference(self.resume(middle, self.length, bad).output, expected)
            for bad in (zeroed, other)
        ]
        return Exactness(worst, equal, *off)

    def tables(self, budgets: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
        """Times against tokens, their fit, restore, and placements, as they are measured."""
        times = self.times()
        yield "times", times
        fits = [fit(times, name) for name in ("median_ms", "cpu_ms")]
        yield "fit", fits
        yield "restore", [self.restore_row(fits[0])]
        yield "placements", self.placements(budgets)

    def times(self) -> list[TimeRow]:
        """Recomputing to the end from about eight grid positions and from the root."""
        starts = (0, *self.grid[:: -(-len(self.grid) // 8)])
        took = self._timed([(start, self.length) for start in starts])
        return [
            TimeRow(self.length - start, *(round(ms, 3) for ms in took[start, self.length]))
            for start in sorted(starts, reverse=True)
        ]

    def restore_row(self, line: Fit) -> RestoreRow:
        stored = self.stored[self.grid[-1]]
        slot = self.restore(stored)

        def copy() -> None:
            for target, part in zip(slot, stored, strict=True):
                target.copy_(part, non_blocking=True)

        took, _ = self._medians({(): copy}, max(20, self.runs))[()]
        return RestoreRow(stored.num_bytes, round(took, 4), round(took / line.ms_per_token, 2))

    def placements(self, budgets: Sequence[int]) -> list[PlacementRow]:
        """The law of two Gaussians over the prefix, at the middles of equal shares of its mass."""
        law, overlaps = self.law(), self.overlaps()
        choices: dict[tuple[str, int], tuple[int, ...]] = {("none", 0): ()}
        for budget in budgets:
            for name in PLACEMENTS:
                if name != "sqrt" or budget == budgets[0]:
                    choices[name, budget] = self.on_grid(name, law, budget)
        pairs = {
            key: list(zip(restore_depths(overlaps, depths).tolist(), overlaps, strict=True))
            for key, depths in choices.items()
        }
        took = self._timed(sorted({pair for found in pairs.values() for pair in found}))
        means = {
            key: np.mean([(end - start, *took[start, end]) for start, end in found], axis=0)
            for key, found in pairs.items()
        }
        nothing = means["none", 0]
        rows = []
        for (name, budget), depths in choices.items():
            mean = means[name, budget]
            tokens, wall_ms, cpu_ms = (round(float(value), 3) for value in mean)
            speedup, cpu_speedup = (round(float(value), 3) for value in (nothing / mean)[1:])
            figures = (tokens, wall_ms, cpu_ms, speedup, cpu_speedup)
            rows.append(PlacementRow(name, budget, len(depths), *figures))
        return rows

    def law(self) -> OverlapWeights:
        """0.6 N(0.25 N, 0.06 N) + 0.4 N(0.7 N, 0.075 N)."""
        law = two_gaussians()
        depths = np.maximum(1, law.depths * self.length // law.length)
        return OverlapWeights(depths, law.weights, self.length)

    def overlaps(self) -> list[int]:
        """Depths with equal shares of the law's mass around them."""
        law = self.law()
        mass = np.cumsum(law.weights) / law.total
        shares = (np.arange(NUM_OVERLAPS) + 0.5) / NUM_OVERLAPS
        return [int(depth) for depth in law.depths[np.searchsorted(mass, shares)]]

    def on_grid(self, name: str, law: OverlapWeights, budget: int) -> tuple[int, ...]:
        """Depths on the grid that the kernels capture on.

        The DP and `sqrt` count tokens (blocks below 64 tokens become all of the grid), the others
        count in steps of the grid, so that each keeps its M.
        """
        if name == "dp":
            return place(law, budget, grid=self.grid).depths
        if name == "sqrt":
            floored = {
                d // CHUNK_TOKENS * CHUNK_TOKENS for d in depths_for(name, None, law.length, 1)
            }
            return tuple(sorted(floored - {0}))
        steps = depths_for(name, None, law.length // CHUNK_TOKENS, budget)
        return tuple(step * CHUNK_TOKENS for step in steps)

    def _timed(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[float, float]]:
        """Restoring at a depth and computing up to an end, for each (depth, end)."""
        calls = {pair: partial(self.resume, *pair) for pair in pairs if pair[0] < pair[1]}
        # nothing to restore for, nothing to compute
        empty = dict.fromkeys((pair for pair in pairs if pair[0] == pair[1]), (0.0, 0.0))
        return empty | self._medians(calls, self.runs)

    def _medians(
        self, calls: Mapping[Key, Callable[[], object]], runs: int
    ) -> dict[Key, tuple[float, float]]:
        """Milliseconds on the clock and of CPU, after one round that is not counted.

        In rounds over all calls, so that a busy moment of the machine hits each of them once.
        """
        took: dict[Key, list[tuple[float, float]]] = {key: [] for key in calls}
        for _ in range(runs + 1):
            for key, call in calls.items():
                self._synchronize()
                begin, cpu_begin = time.perf_counter(), time.process_time()
                call()
                self._synchronize()
                cpu = time.process_time() - cpu_begin
                took[key].append((1e3 * (time.perf_counter() - begin), 1e3 * cpu))
        medians = {}
        for key, found in took.items():
            wall, cpu_times = zip(*found[1:], strict=True)
            medians[key] = (median(wall), median(cpu_times))
        return medians

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _host(self, tensor: Tensor) -> Tensor:
        host = tensor.detach().to("cpu", copy=True).contiguous()
        return host.pin_memory() if self.device.type == "cuda" else host


def wrong(exactness: Exactness) -> str:
    """What is wrong with a resumed output or a control, or nothing."""
    if not exactness.resumed <= TOLERANCE:
        return f"a resumed output is off by {exactness.resumed}, more than {TOLERANCE}"
    for name in ("zeroed_state", "wrong_depth"):
        off = getattr(exactness, name)
        if not off >= CONTROL_FACTOR * TOLERANCE:
            return f"the control {name} is off by {off} only: this check sees nothing"
    return ""


def fit(rows: Sequence[TimeRow], of: str = "median_ms") -> Fit:
    """Least squares over one column of the medians."""
    tokens = np.array([row.recomputed_tokens for row in rows], dtype=np.float64)
    took = np.array([getattr(row, of) for row in rows])
    slope, fixed = np.polyfit(tokens, took, 1)
    left = ((took - fixed - slope * tokens) ** 2).sum()
    share = 1 - left / ((took - took.mean()) ** 2).sum()
    return Fit(of, round(float(fixed), 3), round(float(slope), 5), round(float(share), 5))


def _difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


def _shape(arguments: argparse.Namespace) -> GroupShape:
    if not arguments.tiny:
        return GroupShape()
    return GroupShape(128, 256, 4, 2, 32, 4, 32)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--length", type=int, default=1024, help="tokens of the prefix")
    parser.add_argument("--runs", type=int, default=5, help="timed calls a point")
    parser.add_argument("--budgets", type=page.numbers, default=(2, 4, 8), help="M, with commas")
    parser.add_argument("--tiny", action="store_true", help="a small shape, to try it out")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    return parser


def _about(arguments: argparse.Namespace) -> dict[str, Any]:
    budgets = ",".join(map(str, arguments.budgets))
    command = f"--device {arguments.device} --length {arguments.length} --runs {arguments.runs}"
    command += f" --budgets {budgets}" + (" --tiny" if arguments.tiny else "")
    device = cpu_model()
    if torch.device(arguments.device).type == "cuda":
        device = f"{torch.cuda.get_device_name(arguments.device)}, {device}"
    return {
        "command": f"OMP_NUM_THREADS=1 python -m benchmarks.layer_group {command}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": f"{device}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used",
        "shape": asdict(_shape(arguments)),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    raise SystemExit(main())
