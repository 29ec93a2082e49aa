"""Layers never import upwards, and the pure ones need nothing but NumPy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "spc_sglang"
HEAVY = {"torch", "sglang", "triton", "numba", "transformers"}
# layer -> what it may import besides the standard library and NumPy
PURE = {
    "placement": {"placement"},
    "planning": {"placement", "planning"},
    "replay": {"placement", "planning", "replay"},
}
# the one module that may import Numba, itself imported lazily
NUMBA_MODULE = PACKAGE / "placement" / "compiled.py"


def modules_of(layer: str) -> list[Path]:
    return sorted((PACKAGE / layer).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    """Absolute names of everything a module imports, at any level of nesting."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            names.add(stem)
            if stem == "spc_sglang":
                names.update(f"{stem}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize(
    "path",
    [p for layer in PURE for p in modules_of(layer)],
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_pure_layers_import_numpy_and_lower_layers_only(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0]
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top == "spc_sglang":
            assert not rest or rest[0] in PURE[layer], f"{path.name} imports {name}"
        elif top == "numba":
            assert path == NUMBA_MODULE, f"{path.name} imports numba: only compiled.py may"
        elif top == "tokenizers":
            assert layer == "replay", f"{path.name} imports tokenizers: only text loaders may"
        else:
            assert top == "numpy" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_numba_import_is_guarded_and_lazy() -> None:
    """`import numba` sits in a try, and `compiled` is imported inside a function only."""
    tree = ast.parse(NUMBA_MODULE.read_text(encoding="utf-8"))
    guarded = [
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.Try)
        for node in block.body
        if isinstance(node, ast.Import) and node.names[0].name == "numba"
    ]
    everywhere = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and node.names[0].name == "numba"
    ]
    assert len(guarded) == len(everywhere) == 1
    for path in modules_of("placement") + modules_of("planning"):
        top_level = ast.parse(path.read_text(encoding="utf-8")).body
        for node in top_level:
            if isinstance(node, ast.ImportFrom):
                assert node.module != "spc_sglang.placement.compiled", path.name


def test_only_the_adapter_and_the_kernels_import_sglang_or_torch() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in ("adapter", "kernels"):
            continue
        heavy = {name.split(".")[0] for name in imports_of(path)} & {"torch", "sglang", "triton"}
        assert not heavy, f"{path.relative_to(ROOT)} imports {sorted(heavy)}"


def test_kernels_import_no_other_layer() -> None:
    for path in sorted((ROOT / "kernels").rglob("*.py")):
        for name in imports_of(path):
            inside = name.startswith("spc_sglang.") and not name.startswith("spc_sglang.kernels")
            assert not inside, f"{path.relative_to(ROOT)} imports {name}"
            assert name.split(".")[0] != "sglang", f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("layer", sorted(PURE))
def test_pure_layers_work_without_heavy_packages(layer: str) -> None:
    """Import and use them in a process where torch, sglang and numba cannot be imported."""
    use = {
        "placement": "m.warm_up() is False or 1/0; m.place(m.OverlapWeights.from_samples([4]), 1)",
        "planning": "m.plan_tree(m.PrefixTree([-1, 0], [0, 4], [0, 1]), 1)",
        "replay": "import spc_sglang.replay.cli",
    }[layer]
    code = (
        "import sys\n"
        f"for name in {sorted(HEAVY)!r}: sys.modules[name] = None\n"
        f"import spc_sglang.{layer} as m\n"
        f"{use}\n"
        f"loaded = [n for n in sys.modules if n.split('.')[0] in {sorted(HEAVY)!r}]\n"
        f"assert set(loaded) <= set({sorted(HEAVY)!r}), loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
