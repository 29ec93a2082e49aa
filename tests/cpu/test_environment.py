"""The environment builder reads its pins from pyproject.toml and does nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spc_sglang.adapter.cpu import environment

ROOT = Path(__file__).parents[2]
EXAMPLE = """
[build-system]
requires = ["setuptools>=77"]
[project]
name = "example"
[project.optional-dependencies]
cpu = ["numpy==2.4.6", "torch==2.13.0"]
bench = ["numba>=0.60"]
[dependency-groups]
dev = ["pytest>=8"]
cpu-no-deps = ["sglang==0.5.23"]
kernels-no-deps = ["triton==3.8.0"]
[tool.setuptools]
packages = ["example"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project folder with EXAMPLE as its pyproject.toml."""
    (tmp_path / "pyproject.toml").write_text(EXAMPLE)
    return tmp_path


def test_pins_are_grouped_by_how_pip_installs_them(root: Path) -> None:
    """torch comes first and alone; sglang and its like never bring dependencies."""
    pins = environment.read_pins(root / "pyproject.toml")
    assert pins.torch == "torch==2.13.0"
    assert pins.build == ("setuptools>=77",)
    assert pins.with_dependencies == ("numpy==2.4.6", "numba>=0.60", "pytest>=8")
    assert pins.without_dependencies == ("sglang==0.5.23",)


def test_the_projects_own_pins_parse() -> None:
    """pyproject.toml pins torch and sglang exactly."""
    pins = environment.read_pins(ROOT / "pyproject.toml")
    assert pins.torch.startswith("torch==")
    assert any(pin.startswith("sglang==") for pin in pins.without_dependencies)
    assert not any(pin.startswith("torch==") for pin in pins.with_dependencies)


def test_a_missing_torch_pin_is_refused(root: Path) -> None:
    """Without an exact pin pip could pick a CUDA build of another version."""
    path = root / "pyproject.toml"
    path.write_text(EXAMPLE.replace("torch==2.13.0", "torch>=2"))
    with pytest.raises(ValueError, match="one torch=="):
        environment.read_pins(path)


def test_digests_follow_pins_and_metadata_apart(root: Path) -> None:
    """A pin changes the pins' digest; an entry point or package only the project's."""
    path = root / "pyproject.toml"
    pins = environment.read_pins(path).digest()
    project = environment.read_project_digest(path)
    path.write_text(EXAMPLE.replace('packages = ["example"]', 'packages = ["other"]'))
    assert environment.read_pins(path).digest() == pins
    assert environment.read_project_digest(path) != project
    path.write_text(EXAMPLE.replace("sglang==0.5.23", "sglang==0.5.24"))
    assert environment.read_pins(path).digest() != pins


def test_only_what_changed_is_installed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything at first, nothing the second time, the project alone after a metadata change."""
    folder, calls = root / "venv", []
    packages = environment._site_packages(folder)
    packages.mkdir(parents=True)
    monkeypatch.setattr(environment, "_install_pins", lambda *_: calls.append("pins"))
    monkeypatch.setattr(environment, "_pip", lambda *_: calls.append("project"))

    assert environment.build_environment(folder, root)
    assert calls == ["pins", "project"]
    assert (packages / environment.PTH_NAME).read_text() == environment.PTH_LINE
    assert not environment.build_environment(folder, root)
    assert calls == ["pins", "project"]
    path = root / "pyproject.toml"
    path.write_text(EXAMPLE.replace('packages = ["example"]', 'packages = ["other"]'))
    assert environment.build_environment(folder, root)
    assert calls == ["pins", "project", "project"]


def test_an_interrupted_build_is_not_taken_for_complete(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamp goes first and comes back last."""
    folder = root / "venv"
    folder.mkdir()
    stamp = folder / environment.STAMP_NAME
    stamp.write_text(json.dumps({"pins": "old"}))

    def fail(*_: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(environment, "_install_pins", fail)
    with pytest.raises(RuntimeError, match="no network"):
        environment.build_environment(folder, root)
    assert not stamp.exists()


def test_the_kernel_environment_is_laid_over_the_base(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the base's packages, installs its own pins with the base's pip, and only once."""
    folder, base, calls = root / "kernels", root / "venv", []
    monkeypatch.setattr(environment, "_pip", lambda *a, **k: calls.append((a, k)))
    assert environment.build_kernel_environment(folder, base, root)
    assert calls == [((base, "--no-deps", "triton==3.8.0"), {"into": folder})]
    pth = environment._site_packages(folder) / environment.BASE_PTH_NAME
    assert str(environment._site_packages(base)) in pth.read_text()
    assert not environment.build_kernel_environment(folder, base, root)
    path = root / "pyproject.toml"
    path.write_text(EXAMPLE.replace("triton==3.8.0", "triton==3.8.1"))
    assert environment.build_kernel_environment(folder, base, root)
    assert len(calls) == 2
