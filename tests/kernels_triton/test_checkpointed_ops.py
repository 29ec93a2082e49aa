"""The flash-linear-attention operators with checkpoints, against a recurrence in fp64."""

from __future__ import annotations

import sys
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from spc_sglang.kernels import interpreter
from spc_sglang.kernels.checkpointed import naive, ops
from spc_sglang.kernels.checkpointed.capture import install
from tests.kernels_triton.batches import error

install()
interpreter.adapt(*(m for name, m in sys.modules.items() if name.startswith("fla.ops.")))

TOLERANCES = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}
OPERATORS = {
    "gdn": ops.gated_delta_rule_with_checkpoints,
    "kda": ops.kda_with_checkpoints,
    "simple_gla": ops.simple_gla_with_checkpoints,
}


def make_inputs(
    name: str, tokens: int, dtype: torch.dtype, *, heads: int = 1, dim: int = 32, seed: int = 0
) -> dict[str, Tensor]:
    """Arguments [1, T, ..] of one operator; slow gates, so that checkpoints matter."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(1, tokens, heads, *size, generator=generator)

    key = normalize(normal(dim), dim=-1).to(dtype)
    inputs = {"q": normal(dim).to(dtype), "k": key, "v": normal(dim).to(dtype)}
    inputs["g"] = -0.02 * (normal(dim) if name == "kda" else normal()).abs()
    if name != "simple_gla":
        inputs["beta"] = torch.sigmoid(normal()).to(dtype)
    return inputs


def oracle(
    inputs: dict[str, Tensor], lengths: list[int], initial: Tensor, positions: list[list[int]]
) -> list[naive.RecurrentResult]:
    """The fp64 recurrence, sequence by sequence."""
    results = []
    for row, (start, stop) in enumerate(pairwise(accumulate(lengths, initial=0))):
        part = {name: tensor[0, start:stop].double() for name, tensor in inputs.items()}
        tensors = (part["q"], part["k"], part["v"], part["g"], part.get("beta"))
        results.append(naive.recurrent(*tensors, initial[row].double(), positions[row]))
    return results


def check(name: str, dtype: torch.dtype, lengths: list[int], dim: int = 32, heads: int = 1) -> None:
    inputs = make_inputs(name, sum(lengths), dtype, heads=heads, dim=dim)
    generator = torch.Generator().manual_seed(9)
    initial = 0.3 * torch.randn(len(lengths), heads, dim, dim, generator=generator)
    positions = [sorted({0, length // 64 * 64, length}) for length in lengths]
    bounds = torch.tensor([0, *accumulate(lengths)])
    result = OPERATORS[name](
        **inputs, initial_state=initial, positions=positions, cu_seqlens=bounds
    )
    expected = oracle(inputs, lengths, initial, positions)
    tolerance = TOLERANCES[dtype]
    assert result.checkpoints.dtype == torch.float32 and result.output.dtype == dtype
    assert error(result.output[0], torch.cat([e.output for e in expected])) < tolerance
    assert error(result.final_state, torch.stack([e.state for e in expected])) < tolerance
    assert error(result.checkpoints, torch.cat([e.checkpoints for e in expected])) < tolerance
    assert torch.equal(result.checkpoints[0], initial[0])
    assert torch.equal(result.checkpoints[-1], result.final_state[-1])


@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", ["gdn", "simple_gla"])
def test_equals_the_recurrence(name: str, dtype: torch.dtype, dim: int) -> None:
    """Outputs, final states and checkpoints of five sequences in one call."""
    check(name, dtype, [1, 63, 64, 65, 500], dim, heads=1)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_kda_equals_the_recurrence(dtype: torch.dtype) -> None:
    """Shorter: the library's KDA kernels take a second for six tokens in the interpreter."""
    check("kda", dtype, [65, 1])


@pytest.mark.parametrize("name", ["gdn", "simple_gla"])
def test_resume_is_bitwise_equal(name: str) -> None:
    """Outputs and states of all four chunks behind the cut, and from one checkpoint twice."""
    inputs = make_inputs(name, 384, torch.bfloat16, heads=2)
    run = OPERATORS[name]
    whole = run(**inputs, positions=[128, 256])
    rest = {
        key: tensor[:, 128:].repeat(2, *[1] * (tensor.dim() - 1)) for key, tensor in inputs.items()
    }
    start = ops.restore(whole.checkpoints, [0, 0])
    resumed = run(**rest, initial_state=start, positions=[[128], [256]])
    for row in range(2):
        assert torch.equal(resumed.output[row], whole.output[0, 128:])
        assert torch.equal(resumed.final_state[row], whole.final_state[0])
    assert torch.equal(resumed.checkpoints[0], whole.checkpoints[1])
    assert torch.equal(start[0], whole.checkpoints[0]), "the initial state was written to"


def test_the_library_is_untouched_without_positions() -> None:
    """Outside of a capture its own kernel runs, and gives what a run with checkpoints gives."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    inputs = make_inputs("gdn", 200, torch.bfloat16, heads=2, dim=64)
    output, state = chunk_gated_delta_rule(**inputs, output_final_state=True)
    result = ops.gated_delta_rule_with_checkpoints(**inputs, positions=[64])
    assert torch.equal(result.output, output) and torch.equal(result.final_state, state)


def test_wrong_positions_are_refused() -> None:
    inputs = make_inputs("gdn", 200, torch.float32)
    run = ops.gated_delta_rule_with_checkpoints
    with pytest.raises(ValueError, match=r"depth 100 of sequence 0 .* are 64 and 128"):
        run(**inputs, positions=[100])
    with pytest.raises(ValueError, match="given twice"):
        run(**inputs, positions=[64, 64])
    with pytest.raises(ValueError, match="must be 1 lists"):
        run(**inputs, positions=[[64], [64]])
    with pytest.raises(ValueError, match=r"rows \[3\] are outside the 2 checkpoints"):
        ops.restore(torch.zeros(2, 1, 4, 4), [0, 3])
