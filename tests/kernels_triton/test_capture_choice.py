"""Which way to capture is chosen for which kernel, and what the log says of it."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from spc_sglang.adapter import state_pass
from spc_sglang.adapter.capture_backends import choose


def make_runner(kind: str, kernel: str, *, device: str = "cuda", key_dim: int = 128) -> Any:
    backend = type(kind, (), {})()
    if kernel:
        backend.kernel_dispatcher = SimpleNamespace(extend_kernel=type(kernel, (), {})())
    pool = SimpleNamespace(mamba_cache=SimpleNamespace(temporal=torch.zeros(2, 3, 1, 8, key_dim)))
    return SimpleNamespace(
        attn_backend=SimpleNamespace(linear_attn_backend=backend),
        device=device,
        req_to_token_pool=SimpleNamespace(mamba_pool=pool),
    )


@pytest.mark.parametrize(
    ("kind", "kernel", "device", "expected"),
    [
        ("GDNAttnBackend", "TritonGDNKernel", "cpu", "IndexRows"),
        ("KDAAttnBackend", "TritonKDAKernel", "cpu", "KdaRows"),
        ("Mamba2AttnBackend", "", "cpu", "FlatGrid"),
        ("GDNAttnBackend", "TritonGDNKernel", "cuda", "StatePass"),
        ("KDAAttnBackend", "TritonKDAKernel", "cuda", "StatePass"),
        ("GDNAttnBackend", "FlashInferGDNKernel", "cuda", "PackedStates"),
        ("KDAAttnBackend", "FlashInferKDAPrefillKernel", "cuda", "MappedStates"),
        ("Mamba2AttnBackend", "", "cuda", "FlatGrid"),
        ("GDNAttnBackend", "CuteDSLGDNKernel", "cuda", "NoneType"),
        ("LightningAttentionBackend", "", "cuda", "NoneType"),
    ],
)
def test_the_choice_follows_the_kernel(
    kind: str,
    kernel: str,
    device: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line in the log each."""
    monkeypatch.setattr(state_pass, "can_run", lambda: None)
    with caplog.at_level("INFO"):
        chosen = choose(make_runner(kind, kernel, device=device), allow_state_pass=True)
    assert type(chosen).__name__ == expected
    assert len(caplog.records) == 1
    assert (expected if chosen else "no checkpoints of its own") in caplog.text


def test_our_state_pass_is_not_chosen_where_it_cannot_run(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        choose(make_runner("GDNAttnBackend", "TritonGDNKernel", key_dim=256), allow_state_pass=True)
        is None
    )
    assert "key dimension 256 is above 128" in caplog.text
    assert (
        torch.cuda.is_available()
        or choose(make_runner("KDAAttnBackend", "TritonKDAKernel"), allow_state_pass=True) is None
    )
    assert torch.cuda.is_available() or "has no device here" in caplog.text


@pytest.mark.parametrize(
    ("kind", "kernel", "activations", "expected"),
    [
        ("GDNAttnBackend", "TritonGDNKernel", torch.float32, "IndexRows"),
        ("GDNAttnBackend", "TritonGDNKernel", torch.bfloat16, "NoneType"),
        ("KDAAttnBackend", "TritonKDAKernel", torch.float32, "KdaRows"),
        ("KDAAttnBackend", "TritonKDAKernel", torch.bfloat16, "NoneType"),
    ],
)
def test_without_leave_our_kernel_stays_out(
    kind: str,
    kernel: str,
    activations: torch.dtype,
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Then SGLang's states are taken only if they are as wide as the fp32 pool."""
    runner = make_runner(kind, kernel)
    runner.dtype = activations
    chosen = choose(runner, allow_state_pass=False)
    assert type(chosen).__name__ == expected
    assert chosen or "--spc-state-pass on" in caplog.text


def test_prefills_in_one_cuda_graph_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """They run on tables of their own, so nothing is captured there."""
    runner = make_runner("KDAAttnBackend", "FlashInferKDAPrefillKernel")
    runner.attn_backend.linear_attn_backend.supports_prefill_graph_extend = lambda: True
    assert choose(runner, allow_state_pass=False) is not None
    assert "SGLANG_DISABLE_KDA_PREFILL_GRAPH_EXTEND=1" in caplog.text


@pytest.mark.parametrize("target", state_pass.TARGETS)
def test_the_hooked_functions_still_take_these_arguments(target: str) -> None:
    """And SGLang's prefills call them through the module that we change."""
    module, name = target.rsplit(".", 1)
    function = getattr(importlib.import_module(module), name)
    names = tuple(inspect.signature(function).parameters)
    assert names[: len(state_pass.PARAMETERS) - 1] == state_pass.PARAMETERS[:-1]
    assert {"cu_seqlens", "use_exp2", "inplace_update", "track_state"} <= set(names)
