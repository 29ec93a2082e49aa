"""Import finders that let SGLang be imported on a machine with no GPU.

Put in place by the one-line .pth file of the CPU environment (see environment.py), before any
other import, and only when SGLANG_USE_CPU_ENGINE=1. Three stand-ins, none of which is ever
preferred to an installed package:

- `triton`, where it is not installed: SGLang's own mock, written for Apple's GPUs;
- `torchvision._meta_registrations`, empty: the published torchvision is a CUDA build, whose
  operators do not load next to a CPU torch, and that module would fail on them;
- `sgl_kernel`, which has no CPU build on the package index: see stand_in.py.

This module imports neither torch nor sglang.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ENABLE_VARIABLE = "SGLANG_USE_CPU_ENGINE"
FORK_VARIABLE = "SPC_CPU_FORK"
"""1: SGLang's processes are forked. It spawns them, and each imports everything once more."""
# triton's version that sglang 0.5.23 asks for, reported by the mock
MOCKED_TRITON_VERSION = "3.8.0"
KERNEL_MODULES = ("sgl_kernel", "sgl_kernel.mamba", "sgl_kernel.speculative")
OWN_IMPLEMENTATION = "spc_sglang.adapter.cpu.stand_in"


def is_enabled() -> bool:
    """Whether this process was asked to run SGLang on a CPU."""
    return os.environ.get(ENABLE_VARIABLE) == "1"


def install() -> None:
    """Add the finders once; does nothing unless SGLANG_USE_CPU_ENGINE=1."""
    if not is_enabled():
        return
    tolerate_cuda_torchvision()
    for finder in (TRITON, SGL_KERNEL):
        if finder not in sys.meta_path:
            sys.meta_path.append(finder)


def tolerate_cuda_torchvision() -> None:
    """Let transformers, which imports torchvision, be imported in the CPU environment."""
    if TORCHVISION not in sys.meta_path:
        sys.meta_path.insert(0, TORCHVISION)  # before the installed package's own module


class StandInFinder:
    """A meta-path finder that makes the module `build(name)` for each name it `claims`."""

    def __init__(self, claims: Callable[[str], bool], build: Callable[[str], ModuleType]) -> None:
        self._claims = claims
        self._build = build

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of the stand-in called `name`, None if this finder does not make it."""
        if not self._claims(name):
            return None
        return ModuleSpec(name, _StandInLoader(self._build), is_package=True)


class _StandInLoader:
    def __init__(self, build: Callable[[str], ModuleType]) -> None:
        self._build = build

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._build(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run: create_module returned the complete module."""


def _is_torchvision_registration(name: str) -> bool:
    return name == "torchvision._meta_registrations"


def _is_missing_triton(name: str) -> bool:
    return name.partition(".")[0] == "triton" and PathFinder.find_spec("triton") is None


def _is_missing_sgl_kernel(name: str) -> bool:
    return name in KERNEL_MODULES and PathFinder.find_spec("sgl_kernel") is None


def _empty_module(name: str) -> ModuleType:
    return ModuleType(name)


def _mock_triton(name: str) -> ModuleType:
    """SGLang's mock of `name`; the mock may have made it already, on attribute access."""
    made = sys.modules.get(name)
    if made is not None:
        return made
    stubs = _platform_stubs()
    module: ModuleType = stubs._MockModule(name)
    if name == "triton":
        module.__version__ = MOCKED_TRITON_VERSION
        for attribute, original in (
            ("cdiv", "_cdiv"),
            ("next_power_of_2", "_next_power_of_2"),
            ("Config", "_Config"),
        ):
            setattr(module, attribute, getattr(stubs, original))
    return module


def _platform_stubs() -> ModuleType:
    """SGLang's _platform_stubs.py, loaded by itself: importing the package would import triton."""
    name = "_spc_sglang_platform_stubs"
    if name in sys.modules:
        return sys.modules[name]
    package = PathFinder.find_spec("sglang")
    if package is None or not package.submodule_search_locations:
        raise ImportError("no module named triton, and no sglang to take a stand-in from")
    path = Path(next(iter(package.submodule_search_locations)), "_platform_stubs.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _stand_in_sgl_kernel(name: str) -> ModuleType:
    implementation = importlib.import_module(OWN_IMPLEMENTATION)
    module: ModuleType = implementation.build_module(name)
    return module


TORCHVISION = StandInFinder(_is_torchvision_registration, _empty_module)
TRITON = StandInFinder(_is_missing_triton, _mock_triton)
SGL_KERNEL = StandInFinder(_is_missing_sgl_kernel, _stand_in_sgl_kernel)
