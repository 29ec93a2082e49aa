"""Registers, spills and shared memory of every kernel, compiled for GPUs that need not be here.

    python -m benchmarks.kernel_resources            # sm_80, sm_90a, sm_100a
    python -m benchmarks.kernel_resources 90         # one of them

Triton's wheel carries the assembler, so this runs on any x86-64 Linux. A control with a value
tile of 128 columns must spill: a check that cannot fail would say nothing. The last line of the
output is one JSON object. Says nothing about speed, nor whether a GPU computes the same bits.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from spc_sglang.kernels.conv_window.triton import capture_kernel
from spc_sglang.kernels.gated_delta.triton import NUM_STAGES, VALUE_TILE, Gate, state_pass_kernel
from spc_sglang.kernels.slot_copy.triton import copy_rows_kernel

CAPABILITIES = (80, 90, 100)
SHARED_BYTES = {80: 166912, 90: 232448, 100: 232448}  # largest dynamic allocation of a block
MAX_REGISTERS = 255
CONTROL = "control: 128 value columns"
DIVISIBLE = [["tt.divisibility", 16]]
# Qwen3-Next on one GPU: 32 value heads, 16 key heads, dimensions of 128
STATE_PASS = {
    "HV": 32,
    "HK": 16,
    "K": 128,
    "V": 128,
    "STATE_K": 1,
    "STATE_V": 128,
    "CHUNK": 64,
    "TILE_V": VALUE_TILE,
    "GATE": int(Gate.HEAD),
    "BASE_2": False,
    "DELTA": True,
    "STORE_STATES": True,
    "STORE_VALUES": True,
    "SNAPSHOTS": True,
    "WRITE_BACK": True,
}
STATE_PASS_TYPES = {
    **dict.fromkeys(("key", "update", "reader", "states", "new_values"), "*bf16"),
    **dict.fromkeys(("log_gate", "pool", "snapshot_pool"), "*fp32"),
    **dict.fromkeys(("pool_stride", "snapshot_stride"), "i64"),
}


@dataclass(frozen=True)
class Variant:
    """One kernel with its argument types (default: pointer to int32) and compile-time values."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    num_stages: int = NUM_STAGES


@dataclass(frozen=True)
class Resources:
    """What one variant takes on one target; spills in bytes a thread, shared in bytes a block."""

    variant: str
    target: str
    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    instructions: int
    seconds: float

    @property
    def spills(self) -> bool:
        return self.spill_stores > 0 or self.spill_loads > 0


def variants() -> Iterator[Variant]:
    """Everything that is launched in a prefill, then the control."""
    base = Variant("GDN, snapshots", state_pass_kernel, STATE_PASS_TYPES, STATE_PASS)

    def change(name: str, types: dict[str, str] | None = None, **constants: Any) -> Variant:
        merged = {**base.types, **(types or {})}
        return replace(base, name=name, types=merged, constants={**STATE_PASS, **constants})

    yield base
    yield change("GDN, none", SNAPSHOTS=False)
    yield change("GDN, snapshots only", STORE_STATES=False, STORE_VALUES=False)
    yield change("GDN, bf16 pool", {"pool": "*bf16", "snapshot_pool": "*bf16"})
    yield change("GDN, [K, V] states, base 2", STATE_K=128, STATE_V=1, BASE_2=True)
    yield change("KDA, snapshots", HK=32, GATE=int(Gate.CHANNEL), BASE_2=True)
    yield change("KDA, none", HK=32, GATE=int(Gate.CHANNEL), BASE_2=True, SNAPSHOTS=False)
    yield change("simple GLA, snapshots", DELTA=False)
    yield change("GDN, K = V = 64", K=64, V=64, STATE_V=64)
    strides = ("inputs_layer", "inputs_token", "inputs_channel")
    strides += ("pool_layer", "pool_row", "pool_channel", "pool_tap")
    window_types = {"inputs": "*bf16", "pool": "*bf16", **dict.fromkeys(strides, "i64")}
    window_sizes = {"CHANNELS": 8192, "WIDTH": 3, "TILE": 1024}
    yield Variant("conv windows", capture_kernel, window_types, window_sizes)
    strides = ("source_layer", "source_row", "pool_layer", "pool_row")
    copy_types = {"source_pool": "*fp32", "pool": "*fp32", **dict.fromkeys(strides, "i64")}
    copy_types["row_elements"] = "i32"
    yield Variant("row copy", copy_rows_kernel, copy_types, {"TILE": 4096})
    yield change(CONTROL, TILE_V=128)


def compile_variant(variant: Variant, capability: int) -> Resources:
    """Compile for one GPU generation; RuntimeError if the assembler fails."""
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for index, name in enumerate(variant.kernel.arg_names):
        kind = "constexpr" if name in variant.constants else variant.types.get(name, "*i32")
        signature[name] = kind
        if kind.startswith("*") or kind == "i64":
            attributes[(index,)] = DIVISIBLE
    source = ASTSource(variant.kernel, signature, variant.constants, attributes)
    start = time.perf_counter()
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": 4, "num_stages": variant.num_stages},
    )
    seconds = time.perf_counter() - start
    assembler = str(get_ptxas(capability).path)
    ptx = compiled.asm["ptx"]
    report, instructions = _assemble(ptx, assembler)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    registers = re.search(r"Used (\d+) registers", report)
    if spills is None or registers is None:
        raise RuntimeError(f"{variant.name} on sm_{capability}: {report.strip()}")
    return Resources(
        variant.name,
        _target(ptx),
        int(registers[1]),
        int(spills[1]),
        int(spills[2]),
        compiled.metadata.shared,
        instructions,
        round(seconds, 2),
    )


def _target(ptx: str) -> str:
    found = re.search(r"\.target (\w+)", ptx)
    assert found is not None, ptx[:200]
    return found[1]


def _assemble(ptx: str, assembler: str) -> tuple[str, int]:
    """What the assembler says about registers, and the number of machine instructions."""
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        text.write_text(ptx)
        command = [assembler, "-v", f"--gpu-name={_target(ptx)}", str(text), "-o", str(binary)]
        report = subprocess.run(command, capture_output=True, text=True).stderr
        disassembler = str(Path(assembler).with_name("nvdisasm"))
        listing = subprocess.run(
            [disassembler, "-c", str(binary)], capture_output=True, text=True
        ).stdout
    return report, len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s", listing, flags=re.MULTILINE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capability", nargs="*", type=int, default=list(CAPABILITIES))
    chosen = parser.parse_args().capability
    print(f"triton {triton.__version__}, 4 warps, {NUM_STAGES} stages")
    print(f"{'kernel':28} {'target':8} regs spill B shared B instructions seconds")
    rows = []
    for capability in chosen:
        for variant in variants():
            row = compile_variant(variant, capability)
            rows.append(row)
            print(
                f"{row.variant:28} {row.target:8} {row.registers:4} "
                f"{row.spill_stores + row.spill_loads:7} {row.shared:8} {row.instructions:12} "
                f"{row.seconds:7}",
                flush=True,
            )
    print(json.dumps({"triton": triton.__version__, "resources": [asdict(row) for row in rows]}))
    wrong = [row for row in rows if row.spills != (row.variant == CONTROL)]
    if wrong:
        sys.exit("unexpected: " + ", ".join(f"{row.variant} on {row.target}" for row in wrong))


if __name__ == "__main__":
    main()
