"""The CPU provider: inert unless asked for, never shadows sgl_kernel, says what it lacks.

Each check runs in an interpreter of its own: the provider acts at interpreter start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG_LIMIT_S

ENABLED = "SGLANG_USE_CPU_ENGINE"


def run(code: str, *, enabled: bool, path: Path | None = None) -> str:
    """Standard output of `code` in a new interpreter of this environment."""
    variables = {name: value for name, value in os.environ.items() if name != ENABLED}
    variables["PYTHONSAFEPATH"] = "1"
    if enabled:
        variables[ENABLED] = "1"
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=HANG_LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_inert_without_the_variable() -> None:
    """No finder is installed, and activating imports neither sglang nor torch."""
    code = """
import sys
from spc_sglang.adapter.cpu import plugin, stubs
plugin.activate()
assert not any(isinstance(finder, stubs.StandInFinder) for finder in sys.meta_path)
assert not {"torch", "sglang", "sgl_kernel"} & set(sys.modules)
import importlib.util
assert importlib.util.find_spec("sgl_kernel") is None
"""
    run(code, enabled=False)


def test_enabled_start_is_cheap() -> None:
    """The finders are in place at interpreter start, before anything imported torch."""
    code = """
import sys
from spc_sglang.adapter.cpu import stubs
assert stubs.TRITON in sys.meta_path and stubs.SGL_KERNEL in sys.meta_path
assert "torch" not in sys.modules
assert sys.meta_path[-1] is stubs.SGL_KERNEL, "an installed sgl_kernel must be found first"
"""
    run(code, enabled=True)


def test_a_real_sgl_kernel_is_not_shadowed(tmp_path: Path) -> None:
    """With a package of that name installed, the provider changes nothing at all."""
    package = tmp_path / "sgl_kernel"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '1.0'\n")
    code = """
import sys, sgl_kernel
from spc_sglang.adapter.cpu import plugin, stand_in
plugin.activate()
assert "sglang" not in sys.modules
import torch
assert not hasattr(torch.ops.sgl_kernel, "fused_gdn_gating_cpu")
print(sgl_kernel.__file__)
"""
    found = run(code, enabled=True, path=tmp_path)
    assert found.strip() == str(package / "__init__.py")


def test_stand_in_offers_its_table_and_names_what_it_lacks() -> None:
    """Every operator is registered; any other function imports and fails by name when called."""
    code = """
import torch, sgl_kernel
from sgl_kernel.mamba import chunk_gated_delta_rule_cpu
from sgl_kernel import no_such_function
from spc_sglang.adapter.cpu import stand_in
for schema, _ in stand_in.OPERATORS:
    assert hasattr(torch.ops.sgl_kernel, schema.partition("(")[0]), schema
assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed"), "SGLang would look for AMX"
try:
    no_such_function(1)
except NotImplementedError as error:
    print(error)
"""
    message = run(code, enabled=True)
    assert "sgl_kernel.no_such_function" in message and "use a GPU" in message


def test_every_replacement_takes_and_a_missing_target_stops() -> None:
    """activate() leaves no target as it was; an unknown target is one sentence and an exit."""
    code = """
import pkgutil
from spc_sglang.adapter.cpu import plugin
plugin.activate()
for row in plugin.replacements():
    found = pkgutil.resolve_name(row.target)
    if row.how is plugin.How.HOOK:
        assert hasattr(found, "__wrapped__"), row.target
    else:
        assert found is row.value, row.target
plugin.replacements = lambda: (plugin.Replacement("sglang.srt.no_such.name", 1, "of a test"),)
try:
    plugin.activate()
except SystemExit as stop:
    print(stop)
"""
    message = run(code, enabled=True)
    assert "has no sglang.srt.no_such.name (needed because of a test)" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("fork", ["0", "1"])
def test_processes_are_forked_where_asked_for(fork: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang asks for spawned ones, by force."""
    monkeypatch.setenv("SPC_CPU_FORK", fork)
    code = """
from spc_sglang.adapter.cpu import plugin
plugin.activate()
import multiprocessing
multiprocessing.set_start_method("spawn", force=True)
print(multiprocessing.get_start_method())
"""
    assert run(code, enabled=True).split()[-1] == {"0": "spawn", "1": "fork"}[fork]
