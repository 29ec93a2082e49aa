"""These tests interpret Triton kernels, so they need a process of their own: `make test-kernels`.

The interpreter must be chosen before triton is first imported, and child processes inherit it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from spc_sglang.adapter.cpu.stubs import tolerate_cuda_torchvision
from spc_sglang.kernels import interpreter

tolerate_cuda_torchvision()  # flash-linear-attention imports transformers, which imports it
interpreter.activate()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One torch thread: with more, torch's own sums may round otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
