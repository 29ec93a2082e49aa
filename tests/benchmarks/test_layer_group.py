"""The layer group against its oracles, resumed runs against uncut ones, and the bench's sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import hybrid_group
from benchmarks.hybrid_group import GroupShape, LayerGroup
from benchmarks.layer_group import Bench, Exactness, TimeRow, fit, main, wrong

SMALL = GroupShape(64, 96, 4, 2, 32, 2, 32)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(320, CPU, runs=1, shape=SMALL)


def test_the_group_equals_its_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token, torch's own convolution, softmax written out."""
    group = LayerGroup(SMALL, CPU)
    hidden = torch.randn(150, 64, generator=torch.Generator().manual_seed(3))
    fast = group.prefill(hidden).output
    monkeypatch.setattr(hybrid_group.gated_delta, "chunked", hybrid_group.gated_delta.recurrent)
    conv, attention = hybrid_group.causal_conv1d, hybrid_group.extend_attention
    monkeypatch.setattr(conv, "prefill", conv.reference)
    monkeypatch.setattr(attention, "extend", attention.reference)
    torch.testing.assert_close(fast, group.prefill(hidden).output, atol=1e-4, rtol=1e-4)


def test_every_checkpoint_resumes_the_uncut_run(bench: Bench) -> None:
    """Ends on and off the grid; a run from the root as well."""
    for depth in (0, *bench.grid):
        for end in (depth + 1, depth + 40, bench.length):
            found = bench.resume(depth, end).output
            torch.testing.assert_close(
                found, bench.whole.output[depth:end], atol=2e-5, rtol=1e-5, msg=f"{depth} {end}"
            )


def test_checkpoints_of_a_resumed_run_are_those_of_the_uncut_one(bench: Bench) -> None:
    start = bench.restore(bench.stored[64])
    kv = (bench.whole.kv[0][:64], bench.whole.kv[1][:64])
    again = bench.group.prefill(bench.hidden[64:], kv, start, capture=(192,)).checkpoints[192]
    for found, expected in zip(again, bench.stored[192], strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_wrong_states_are_seen(bench: Bench) -> None:
    """A zeroed state and one of another depth show; each of them makes the check fail."""
    found = bench.exactness()
    assert wrong(found) == ""
    assert "off by 0.1" in wrong(Exactness(0.1, False, 1.0, 1.0))
    assert "off by nan" in wrong(Exactness(float("nan"), False, 1.0, 1.0))
    assert "zeroed_state" in wrong(Exactness(0.0, True, 1e-4, 1.0))
    assert "wrong_depth" in wrong(Exactness(0.0, True, 1.0, 0.0))


def test_a_wrong_checkpoint_fails_the_whole_check(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(320, CPU, runs=1, shape=SMALL)
    monkeypatch.setitem(bench.stored, 64, bench.stored[128])
    assert "a resumed output is off" in wrong(bench.exactness())


def test_fit_by_hand() -> None:
    rows = [TimeRow(tokens, 2 + 0.5 * tokens, 3 + 0.25 * tokens) for tokens in (64, 128, 320)]
    line, cpu = fit(rows), fit(rows, "cpu_ms")
    assert (cpu.of, cpu.fixed_ms, cpu.ms_per_token) == ("cpu_ms", 3.0, 0.25)
    assert (line.fixed_ms, line.ms_per_token, line.r_squared) == (2.0, 0.5, 1.0)
    bent = fit([TimeRow(n, took, 0.0) for n, took in ((1, 0.0), (2, 3.0), (3, 0.0), (4, 3.0))])
    # slope 0.6, mean 1.5: residuals 7.2 of 9
    assert (bent.ms_per_token, bent.r_squared) == (0.6, 0.2)


def test_placements_keep_their_budget_on_the_grid(bench: Bench) -> None:
    """Five steps of 64 tokens."""
    law = bench.law()
    assert law.length == 320
    assert bench.on_grid("balanced", law, 2) == (128, 256)
    assert bench.on_grid("block", law, 2) == (192,)
    assert bench.on_grid("log", law, 2) == (128, 320)
    # blocks of 18 tokens, the last of them at 306: all of the grid
    assert bench.on_grid("sqrt", law, 2) == bench.grid
    # the humps are at 80 and 224
    assert bench.on_grid("dp", law, 2) == (64, 192)
    assert all(0 < depth < 320 for depth in bench.overlaps())


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--output", str(tmp_path / "g.json"), "--device", "cpu"]
    assert main(["--tiny", "--length", "256", "--runs", "1", "--budgets", "1,2", *places]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result == json.loads((tmp_path / "g.json").read_text())
    rows = {(row["placement"], row["budget"]): row for row in result["placements"]}
    assert rows["dp", 2]["mean_recomputed_tokens"] < rows["dp", 1]["mean_recomputed_tokens"]
    assert rows["dp", 1]["mean_recomputed_tokens"] < rows["none", 0]["mean_recomputed_tokens"]
    assert result["times"][-1]["recomputed_tokens"] == 256
    # three layers of 4 heads of 32 x 32, and windows of 3 x 4 x 32 channels and 3 rows, fp32
    assert result["restore"][0]["checkpoint_bytes"] == 3 * 4 * (4 * 32 * 32 + 3 * 4 * 32 * 3)


def test_lengths_off_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        Bench(100, CPU, runs=1, shape=SMALL)
