"""The command: table, JSON line, and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spc_sglang.replay.cli import main
from spc_sglang.replay.contenders import CONTENDERS


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.jsonl"
    records = [
        {"input_length": 2049, "output_length": 1, "hash_ids": [0, 1, 2, 3 + n % 2]}
        for n in range(6)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_last_line_has_a_row_for_each_policy_and_pool(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--format", "mooncake", str(trace_file), "--slots", "2,8"]) == 0
    printed = capsys.readouterr().out.splitlines()
    result = json.loads(printed[-1])
    assert result["requests"] == 6
    names = [(row["slots"], row["policy"]) for row in result["rows"]]
    assert names == [(slots, name) for slots in (2, 8) for name in CONTENDERS]
    assert len(printed) == 1 + len(names) + 1
    wanted = {"share", "recomputed_over_bound", "lost_p95_tokens", "captures_per_request"}
    assert wanted | {"read_back_share"} <= result["rows"][0].keys()


def test_json_prints_nothing_else(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "spc,end", "--slots", "4", "--limit", "3", "--json"]
    assert main(["replay", "--format", "mooncake", str(trace_file), *arguments]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["requests"] == 3


def test_report_is_one_page_that_loads_nothing(trace_file: Path, tmp_path: Path) -> None:
    """Every policy has its row and its line; no script, link or address in it."""
    arguments = ["--slots", "2,8", "--report", str(tmp_path / "out")]
    assert main(["replay", "--format", "mooncake", str(trace_file), *arguments]) == 0
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert page.count("<tr><td>") == 2 * len(CONTENDERS)
    assert not any(word in page for word in ("<script", "<link", "http", "src="))


def test_bytes_of_a_model(
    trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two prompts of 32 blocks share 24: 40 blocks of KV, and what is live at the peak."""
    arguments = ["--policies", "end,none", "--slots", "4", "--model-bytes", "1000,10"]
    report = ["--report", str(tmp_path / "out")]
    assert main(["replay", "--format", "mooncake", str(trace_file), *arguments, *report]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    end, nothing = result["rows"]
    assert (end["kv_tokens"], nothing["kv_tokens"]) == (2560, 2560)
    assert (end["peak_live"], end["held_bytes"]) == (2, 2 * 1000 + 2560 * 10)
    assert (nothing["share"], nothing["held_bytes"]) == (0.0, 25600)
    expected = [("none", 0.0), ("end", end["share"])]
    for cost in ("bytes", "checkpoints"):
        assert [(r["policy"], r["share"]) for r in result["pareto"][cost]] == expected
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "1000,10 bytes" in page


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "gpt"], "'gpt'"),
        (["--model-bytes", "12"], "'12'"),
        (["--policies", "best"], "'best'"),
        (["--slots", "0"], "slots 0"),
        (["--slots", "many"], "'many'"),
        (["--limit", "0"], "limit 0"),
        (["--kv-tokens", "10"], "kv-tokens 10"),
    ],
)
def test_bad_input_is_one_line(
    trace_file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["replay", "--format", "mooncake", str(trace_file), *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["replay", "--format", "mooncake", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
