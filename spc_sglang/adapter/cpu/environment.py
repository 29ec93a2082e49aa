"""Build the CPU environment: a venv in which an unmodified SGLang serves on a plain CPU.

Standard library only, so that a bare Python 3.11 can run it before anything is installed:

    python3 spc_sglang/adapter/cpu/environment.py .venv
    python3 spc_sglang/adapter/cpu/environment.py .venv --kernels .venv-kernels

The second line adds a venv that sees all packages of the first, and Triton and
flash-linear-attention besides: transformers would call these without a GPU if it found them.

Versions come from pyproject.toml and nowhere else. A second call returns at once unless a pin
changed; a change of the project's own metadata (entry points, packages) re-installs only that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
import tomllib
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

STAMP_NAME = "spc-cpu-environment.json"
PTH_NAME = "spc_cpu.pth"
BASE_PTH_NAME = "spc_base.pth"
# One line, because `site` executes a .pth line by line. It imports nothing of ours (and never
# torch) unless the variable asks for it, so other programs in the venv pay only a dict lookup.
PTH_LINE = (
    'import os; os.environ.get("SGLANG_USE_CPU_ENGINE") == "1" and '
    '__import__("spc_sglang.adapter.cpu.stubs", fromlist=["install"]).install()\n'
)
CUDA_CHECK = "import torch; print(torch.version.cuda or '')"


@dataclass(frozen=True)
class Pins:
    """Requirement strings of pyproject.toml, grouped by how pip must install them."""

    torch: str
    build: tuple[str, ...]
    with_dependencies: tuple[str, ...]
    without_dependencies: tuple[str, ...]

    def digest(self) -> str:
        """Hash of every pin and of the Python that runs them."""
        return _digest([asdict(self), list(sys.version_info[:3])])


def read_pins(pyproject: Path) -> Pins:
    """Pins of `pyproject`; ValueError if the `cpu` extra does not pin torch exactly."""
    table = tomllib.loads(pyproject.read_text())
    extras = table["project"]["optional-dependencies"]
    groups = table["dependency-groups"]
    torch_pins = [pin for pin in extras["cpu"] if pin.startswith("torch==")]
    if len(torch_pins) != 1:
        raise ValueError(f"the cpu extra of {pyproject} must hold one torch==X.Y.Z: {torch_pins}")
    cpu = [pin for pin in extras["cpu"] if pin != torch_pins[0]]
    return Pins(
        torch=torch_pins[0],
        build=tuple(table["build-system"]["requires"]),
        with_dependencies=(*cpu, *extras["bench"], *groups["dev"]),
        without_dependencies=tuple(groups["cpu-no-deps"]),
    )


def read_project_digest(pyproject: Path) -> str:
    """Hash of what an editable install copies into the venv: metadata and the package map."""
    table = tomllib.loads(pyproject.read_text())
    return _digest([table["project"], table["tool"]["setuptools"]])


def build_environment(folder: Path, root: Path) -> bool:
    """Bring the venv at `folder` up to date for the project at `root`; False if it was already.

    Takes one to three minutes from nothing. Raises CalledProcessError when pip fails.
    """
    pins = read_pins(root / "pyproject.toml")
    wanted = {"pins": pins.digest(), "project": read_project_digest(root / "pyproject.toml")}
    wanted["root"] = str(root)
    stamp = folder / STAMP_NAME
    found = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if found == wanted:
        return False
    stamp.unlink(missing_ok=True)
    if found.get("pins") != wanted["pins"]:
        _install_pins(folder, pins)
    _pip(folder, "--no-deps", "--no-build-isolation", "--editable", str(root))
    _site_packages(folder).joinpath(PTH_NAME).write_text(PTH_LINE)
    stamp.write_text(json.dumps(wanted, indent=1))
    return True


def build_kernel_environment(folder: Path, base: Path, root: Path) -> bool:
    """Bring the venv at `folder`, laid over the one at `base`, up to date; False if it was already.

    Takes half a minute and 0.9 GB from nothing. Raises CalledProcessError when pip fails.
    """
    table = tomllib.loads((root / "pyproject.toml").read_text())
    pins = table["dependency-groups"]["kernels-no-deps"]
    wanted = {"pins": _digest([pins, list(sys.version_info[:3])]), "base": str(base)}
    stamp = folder / STAMP_NAME
    if stamp.is_file() and json.loads(stamp.read_text()) == wanted:
        return False
    stamp.unlink(missing_ok=True)
    if not _python(folder).is_file():
        venv.create(folder, symlinks=True)
    # a .pth, so that the .pth files of the base are read as well
    line = f"import site; site.addsitedir({str(_site_packages(base))!r})\n"
    _site_packages(folder).joinpath(BASE_PTH_NAME).write_text(line)
    _pip(base, "--no-deps", *pins, into=folder)
    stamp.write_text(json.dumps(wanted, indent=1))
    return True


def _install_pins(folder: Path, pins: Pins) -> None:
    if not _python(folder).is_file():
        venv.create(folder, with_pip=True, symlinks=True)
    _install_torch(folder, pins.torch)
    # torch is repeated so that no other requirement can move it.
    _pip(folder, *pins.build, *pins.with_dependencies, _installed_torch(folder))
    _pip(folder, "--no-deps", *pins.without_dependencies)


def _install_torch(folder: Path, pin: str) -> None:
    """The CPU build where pip can see one, else whatever carries the pinned version."""
    try:
        _pip(folder, f"{pin}+cpu", quiet_errors=True)
    except subprocess.CalledProcessError:
        print(f"note: pip sees no {pin}+cpu here; installing {pin} from the default index")
        _pip(folder, pin)
    command = [str(_python(folder)), "-c", CUDA_CHECK]
    cuda = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if cuda:
        print(f"note: this torch was built for CUDA {cuda}: it works, but takes several GB")


def _installed_torch(folder: Path) -> str:
    code = "from importlib.metadata import version; print(version('torch'))"
    command = [str(_python(folder)), "-c", code]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"torch=={version}"


def _pip(
    folder: Path, *arguments: str, quiet_errors: bool = False, into: Path | None = None
) -> None:
    """Install with the pip of `folder`, by default there."""
    target = [] if into is None else ["--python", str(_python(into))]
    command = [str(_python(folder)), "-m", "pip", *target, "install", "-qq", *arguments]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL if quiet_errors else None)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _site_packages(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def main(arguments: list[str]) -> None:
    """Command line: the folder of the venv, and of the one with the kernels' packages."""
    parser = argparse.ArgumentParser(description="Build the CPU environment.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernels", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[3]
    folder = options.folder.absolute()
    start = time.monotonic()
    if build_environment(folder, root):
        print(f"{folder}: ready after {time.monotonic() - start:.0f} s")
    if options.kernels is None:
        return
    start = time.monotonic()
    if build_kernel_environment(options.kernels.absolute(), folder, root):
        print(f"{options.kernels.absolute()}: ready after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
