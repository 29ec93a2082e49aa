"""Cost of capturing states inside the state pass, on a GPU; checks the kernels there first.

    python -m benchmarks.kernels [--tokens 8192] [--prefill-ms MS] [--output FILE]

Checks: equal bits to SGLang's own state kernel (where sglang is installed), to a resumed run, and
to the naive twins of the window and row-copy kernels. A red check ends the run before any time is
taken. Then, at the shape of a Qwen3-Next layer on one GPU, the time of the state pass with 0 to 16
checkpoints, of the windows and of the row copies, with bandwidths beside a plain copy. Takes about
two minutes. Prints a table and, as the last line, one JSON object, also written to FILE.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
import triton
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from spc_sglang.kernels.conv_window import naive as window_twin
from spc_sglang.kernels.conv_window import triton as window
from spc_sglang.kernels.gated_delta.plan import SnapshotPlan, plan_snapshots
from spc_sglang.kernels.gated_delta.triton import StatePassResult, state_pass
from spc_sglang.kernels.slot_copy import naive as copy_twin
from spc_sglang.kernels.slot_copy import triton as row_copy

CHECKPOINTS = (0, 1, 4, 8, 16)
LINEAR_LAYERS = 36  # of Qwen3-Next's 48
CONV_CHANNELS = 8192
CONV_WINDOW = 3
STATE_PASS_TARGET = 0.05  # of the state pass without capture
PREFILL_TARGET = 0.01
REPEATS = 50


@dataclass(frozen=True)
class Shape:
    """One sequence in one linear layer; the default is Qwen3-Next on one GPU."""

    tokens: int = 8192
    heads: int = 32
    key_heads: int = 16
    dim: int = 128

    @property
    def state_bytes(self) -> int:
        return self.heads * self.dim * self.dim * 4


@dataclass(frozen=True)
class Row:
    """One measurement: median of `REPEATS` launches, and useful bytes moved by one."""

    name: str
    microseconds: float
    gigabytes_per_s: float | None
    over_no_capture: float | None


@dataclass(frozen=True)
class Layer:
    """Inputs of a state pass in bf16, as `state_pass` takes them."""

    key: Tensor
    update: Tensor
    reader: Tensor
    log_gate: Tensor

    def run(self, pool: Tensor, slot: int, plan: SnapshotPlan) -> StatePassResult:
        slots = torch.full((1,), slot, dtype=torch.int32, device=pool.device)
        return state_pass(self.key, self.update, self.reader, self.log_gate, pool, slots, plan)

    def after(self, depth: int) -> Layer:
        tensors = (self.key, self.update, self.reader, self.log_gate)
        return Layer(*(x[:, depth:].contiguous() for x in tensors))


def make_layer(shape: Shape, device: torch.device) -> Layer:
    """Random inputs with slow gates; the same on every run."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(1, shape.tokens, *size, generator=generator, device=device)

    gate = logsigmoid(normal(shape.heads) + 5)
    sums = [chunk.cumsum(1) for chunk in gate.split(64, dim=1)]
    return Layer(
        normalize(normal(shape.key_heads, shape.dim), dim=-1).bfloat16(),
        normal(shape.heads, shape.dim).bfloat16(),
        (0.3 * normalize(normal(shape.heads, shape.dim), dim=-1)).bfloat16(),
        torch.cat(sums, dim=1),
    )


def make_pool(rows: int, shape: Shape, device: torch.device) -> Tensor:
    generator = torch.Generator(device).manual_seed(1)
    size = (rows, shape.heads, shape.dim, shape.dim)
    return 0.1 * torch.randn(*size, generator=generator, device=device)


def spread(count: int, tokens: int, device: torch.device) -> SnapshotPlan:
    """A plan of `count` checkpoints, evenly spread over the chunk boundaries."""
    depths = [64 * (tokens * (i + 1) // (64 * (count + 1))) for i in range(count)]
    return plan_snapshots([tokens], None, [{d: 1 + i for i, d in enumerate(depths)}], device)


def verify(shape: Shape, device: torch.device) -> Iterator[tuple[str, bool]]:
    """Name and verdict of every check."""
    layer = make_layer(shape, device)
    cut = shape.tokens // 2 // 64 * 64
    start = make_pool(2, shape, device)
    pool = start.clone()
    plan = plan_snapshots([shape.tokens], None, [{cut: 1}], device)
    whole = layer.run(pool, 0, plan)
    assert whole.states is not None and whole.new_values is not None
    plain_pool = start.clone()
    plain = layer.run(plain_pool, 0, plan_snapshots([shape.tokens], device=device))
    same = torch.equal(plain.states, whole.states) and torch.equal(plain_pool[0], pool[0])
    yield "capture changes nothing else", same
    again = pool.clone()
    rest = plan_snapshots([shape.tokens - cut], [cut], device=device)
    resumed = layer.after(cut).run(again, 1, rest)
    same = torch.equal(resumed.new_values, whole.new_values[:, cut:])
    yield "a resumed run has the same bits", same and torch.equal(again[1], pool[0])
    if importlib.util.find_spec("sglang") is None:
        print("not compared with SGLang's kernel: sglang is not installed")
    else:
        yield "SGLang's kernel has the same bits", _equals_sglang(layer, start, whole, pool, plan)
    yield "windows equal their twin", _windows_equal_twin(shape, device)
    copied, expected = start.clone(), start.clone()
    source, target = (torch.tensor([i], dtype=torch.int32, device=device) for i in (0, 1))
    row_copy.copy_rows(start[None], source, copied[None], target)
    copy_twin.copy_rows(start[None], source, expected[None], target)
    yield "row copies equal their twin", torch.equal(copied, expected)


def _equals_sglang(
    layer: Layer, start: Tensor, ours: StatePassResult, pool: Tensor, plan: SnapshotPlan
) -> bool:
    """States, values, final state and its one fp32 snapshot, bit by bit."""
    from sglang.kernels.ops.attention.fla.chunk_delta_h import chunk_gated_delta_rule_fwd_h

    theirs = start.clone()
    tracked = torch.empty_like(start[:1])
    states, values = chunk_gated_delta_rule_fwd_h(
        k=layer.key,
        w=layer.reader,
        u=layer.update,
        g=layer.log_gate,
        initial_state=theirs,
        initial_state_indices=torch.zeros(1, dtype=torch.int32, device=start.device),
        cu_seqlens=plan.cu_tokens,
        track_state=tracked,
        track_chunk_idx=plan.chunk[:1],
    )
    pairs = ((states, ours.states), (values, ours.new_values), (theirs[0], pool[0]))
    for name, (their, our) in zip(("states", "values", "final"), pairs, strict=True):
        print(f"  {name}: largest difference {(their.float() - our.float()).abs().max().item()}")
    return all(torch.equal(*pair) for pair in pairs) and torch.equal(tracked[0], pool[1])


def _windows_equal_twin(shape: Shape, device: torch.device) -> bool:
    inputs, pool, rows = _windows(4, 2, shape, device)
    expected = pool.clone()
    window_twin.capture(inputs, expected, *rows)
    window.capture(inputs, pool, *rows)
    return torch.equal(pool, expected)


def _windows(
    count: int, layers: int, shape: Shape, device: torch.device
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Inputs, pool, and position, start, source and target of `count` windows."""
    inputs = torch.randn(layers, shape.tokens, CONV_CHANNELS, device=device).bfloat16()
    pool = torch.randn(layers, count + 1, CONV_CHANNELS, CONV_WINDOW, device=device).bfloat16()
    position = [shape.tokens * i // count for i in range(count)]
    columns = (position, [0] * count, [0] * count, list(range(1, count + 1)))
    rows = [torch.tensor(column, dtype=torch.int32, device=device) for column in columns]
    return inputs, pool, rows


def measure(shape: Shape, device: torch.device) -> Iterator[Row]:
    """State pass per number of checkpoints, then windows and copies, then the copy ceiling."""
    layer = make_layer(shape, device)
    pool = make_pool(1 + max(CHECKPOINTS), shape, device)
    reference = None
    for count in CHECKPOINTS:
        plan = spread(count, shape.tokens, device)
        seconds = _seconds(lambda plan=plan: layer.run(pool, 0, plan))
        reference = seconds if reference is None else reference
        moved = _state_pass_bytes(layer, shape) + count * shape.state_bytes
        relative = seconds / reference - 1
        yield Row(f"state pass, {count} checkpoints", *_rates(seconds, moved), relative)
    inputs, conv_pool, rows = _windows(8, 1, shape, device)
    moved = 2 * 8 * CONV_CHANNELS * CONV_WINDOW * 2
    seconds = _seconds(lambda: window.capture(inputs, conv_pool, *rows))
    yield Row("8 conv windows, one layer", *_rates(seconds, moved), None)
    layers = pool[None].expand(LINEAR_LAYERS, *pool.shape).contiguous()
    source, target = (torch.tensor([i], dtype=torch.int32, device=device) for i in (0, 1))
    seconds = _seconds(lambda: row_copy.copy_rows(layers, source, layers, target))
    moved = 2 * LINEAR_LAYERS * shape.state_bytes
    yield Row(f"one state, {LINEAR_LAYERS} layers", *_rates(seconds, moved), None)
    ceiling = torch.empty(2**28, dtype=torch.float32, device=device)
    half = ceiling.numel() // 2
    seconds = _seconds(lambda: ceiling[:half].copy_(ceiling[half:]))
    yield Row("copy of 512 MiB: the ceiling", *_rates(seconds, ceiling.nbytes), None)


def _state_pass_bytes(layer: Layer, shape: Shape) -> int:
    """Each tensor once: inputs, new values, bf16 states, and the state in and out."""
    inputs = sum(x.nbytes for x in (layer.key, layer.update, layer.reader, layer.log_gate))
    chunks = -(-shape.tokens // 64)
    return inputs + layer.update.nbytes + chunks * shape.state_bytes // 2 + 2 * shape.state_bytes


def _rates(seconds: float, moved: int) -> tuple[float, float]:
    return seconds * 1e6, moved / seconds / 1e9


def _seconds(launch: Callable[[], object]) -> float:
    """Median time of a launch on the device, after a warm-up that also compiles."""
    for _ in range(5):
        launch()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=Shape.tokens)
    parser.add_argument("--prefill-ms", type=float, help="time of such a prefill of the model")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks.kernels needs a CUDA device: nothing was measured")
    device = torch.device("cuda")
    shape = Shape(tokens=options.tokens)
    machine = {
        "gpu": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    print(f"{machine} {shape}")
    for name, passed in verify(shape, device):
        print(f"{'ok   ' if passed else 'WRONG'} {name}")
        if not passed:
            sys.exit("no times are taken of a kernel that is wrong")

    print("| what | us | GB/s | over no capture |\n|---|---|---|---|")
    rows = []
    for row in measure(shape, device):
        rows.append(row)
        relative = "" if row.over_no_capture is None else f"{row.over_no_capture:+.1%}"
        print(f"| {row.name} | {row.microseconds:.1f} | {row.gigabytes_per_s:.0f} | {relative} |")
    captured = {row.name: row for row in rows}
    eight, none = (captured[f"state pass, {count} checkpoints"] for count in (8, 0))
    added_ms = LINEAR_LAYERS * (eight.microseconds - none.microseconds) / 1e3
    summary: dict[str, object] = {"added_ms_8_checkpoints": added_ms}
    summary["state_pass_target_met"] = (eight.over_no_capture or 0.0) <= STATE_PASS_TARGET
    if options.prefill_ms:
        summary["prefill_target_met"] = added_ms <= PREFILL_TARGET * options.prefill_ms
    result = {**machine, "shape": asdict(shape), "rows": [asdict(r) for r in rows], **summary}
    text = json.dumps(result)
    if options.output:
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
