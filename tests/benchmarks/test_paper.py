"""The published evaluation on cases with known answers, and one small run of it all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.paper import FLAGS, main
from benchmarks.published import claims
from benchmarks.published.datasets import LOADERS, Dataset, Tokens, from_files, synthetic
from benchmarks.published.drift import drift_rows
from benchmarks.published.entries import (
    Match,
    law_of,
    matches,
    replay_known,
    replay_learnt,
)
from benchmarks.published.examples import ExampleRow, example_rows
from benchmarks.published.laws import BlockRow, FactorRow, block_rows, factor_rows, prompt_rows
from benchmarks.published.serving import EntryRow, front
from spc_sglang.placement import OverlapWeights
from spc_sglang.placement.histogram import PlainHistogram


def prompts(*texts: str) -> list[Tokens]:
    return [np.array([ord(letter) for letter in text], dtype=np.int32) for text in texts]


def test_last_entries_by_hand() -> None:
    """The deepest match among the last two; the last token of a prompt is never matched."""
    texts = prompts("abcdef", "abcxx", "abcxyy", "q", "abcdef")
    assert matches(texts, 2) == [Match(1, 0, 3), Match(2, 1, 4), Match(4, 2, 3)]
    assert matches(texts, 4)[-1] == Match(4, 0, 5)
    assert matches(prompts("aa", "aa"), 1) == [Match(1, 0, 1)]


def test_replay_by_hand() -> None:
    """Overlaps 3 and 4 with a checkpoint at 2: one and two tokens of seven."""
    found = [Match(1, 0, 3), Match(2, 1, 4)]
    result = replay_known([6, 5, 6], found, lambda length: (2,))
    assert result == (7, 3, 3) and result.factor == pytest.approx(7 / 3)
    assert replay_known([6, 5, 6], found, lambda length: (3, 4)).factor is None


def test_learning_by_hand() -> None:
    """The first entry is balanced (4 of 6) and loses 3; then the depth 3 is known, losing 1."""
    found = [Match(1, 0, 3), Match(2, 1, 4)]
    assert replay_learnt([6, 5, 6], found, PlainHistogram(), 1) == (7, 4, 3)


def test_factors_on_a_law_by_hand() -> None:
    """Half the weight at 10, half at 30: one checkpoint leaves 5 tokens of 20 (at 10: 10).

    Blocks of 8 replay 2 and 6; one checkpoint replays at least 10, so the DP needs two.
    """
    law = OverlapWeights([10, 30], [1.0, 1.0])
    rows = {(r.placement, r.budget): r for r in factor_rows("x", law, [1, 2])}
    assert (rows["dp", 1].mean_replay_tokens, rows["dp", 1].factor) == (5.0, 4.0)
    assert (rows["dp", 2].mean_replay_tokens, rows["dp", 2].factor) == (0.0, None)
    # balanced: at 16 of 30; block: 15 and 30
    assert rows["balanced", 1].mean_replay_tokens == (10 + 14) / 2
    assert rows["block", 2].mean_replay_tokens == 5.0
    assert block_rows("x", law, [8, 40]) == [BlockRow("x", 8, 3, 2)]


def test_placements_on_a_prompt_by_hand() -> None:
    """Two of the later requests share 100 of its 200 tokens, one 150, one nothing."""
    prompt = "a" * 200
    later = [prompt[:shared] + "b" * 99 for shared in (100, 100, 150, 0)]
    dataset = Dataset("x", tuple(prompts(prompt, *later, "c", "c", "c")), False, "")
    rows = {r.placement: r for r in prompt_rows(dataset, OverlapWeights([100], [1.0]), 1, 2)}
    own, pooled = rows["dp on its own law"], rows["dp on the pooled law"]
    assert (own.requests, own.prompt_tokens, own.depths) == (3, 200, (100,))
    assert own.mean_replay_tokens == pooled.mean_replay_tokens == round(50 / 3, 1)
    # at 101: the two of 100 start at the root
    assert rows["balanced"].mean_replay_tokens == round((100 + 100 + 49) / 3, 1)


def test_two_gaussians_and_uniform() -> None:
    rows = {row.law: row for row in example_rows()}
    two = rows["two Gaussians"]
    assert (round(two.balanced_tokens, 2), round(two.dp_tokens, 2)) == (14.18, 8.61)
    assert round(two.change_percent, 1) == -39.3
    assert rows["uniform"].balanced_tokens == rows["uniform"].dp_tokens


def test_claims_can_fail() -> None:
    """Rows that contradict each claim make it disagree, rows that bear it out make it agree."""
    wrong = ExampleRow("two Gaussians", 200, 6, 14.18, 8.7, -38.6, ())
    assert not claims.two_gaussian_claim([wrong]).agrees
    worse = [FactorRow("x", name, 1, 1, lost, None) for name, lost in (("dp", 9), ("balanced", 8))]
    assert not claims.known_law_claim(worse).agrees
    for dp, even, agrees in ((50, 60, True), (60, 50, False)):
        rows = [entry("dp learnt", dp), *(entry(n, even) for n in ("balanced", "block", "log"))]
        assert claims.learnt_law_claim(rows).agrees is agrees
    assert claims.block_claim([BlockRow("x", 64, 10, 6)]).agrees
    assert not claims.block_claim([BlockRow("x", 64, 10, 9)]).agrees


def test_budget_claims_by_hand() -> None:
    """The gain falls from 10 to 3 tokens while the ratio rises from 2 to 4."""
    lost = {("dp", 1): 10, ("dp", 2): 1, ("balanced", 1): 20, ("balanced", 2): 4}
    rows = [FactorRow("x", name, m, m, tokens, None) for (name, m), tokens in lost.items()]
    rows += [FactorRow("x", name, m, m, 99, None) for name in ("block", "log") for m in (1, 2)]
    tokens, ratio = claims.low_budget_claims(rows)
    assert tokens.agrees and not ratio.agrees
    assert "M=1 2.00, M=2 4.00" in ratio.found


def test_statements_of_the_text() -> None:
    assert not claims.exchange_claim().agrees
    assert claims.stability_claim(200).agrees
    assert not claims.replaced_sample_claim().agrees
    assert claims.balanced_claim().agrees


def test_front_by_hand() -> None:
    rows = [entry("a", 50, 4), entry("b", 60, 2), entry("c", 55, 3), entry("d", 60, 3)]
    assert [row.placement for row in front(rows)] == ["b", "c", "a"]


def test_drift_knows_still_from_moving() -> None:
    """Long memory wins on a law that stands still, and short memory on one that runs."""
    over = {(row.motion.split(":")[0], row.estimator): row.over_oracle for row in drift_rows(1000)}
    assert 1.0 <= over["still", "all samples"] < over["still", "EW 0.9"]
    assert over["fast", "EW 0.9"] < over["fast", "EW 0.99"]
    assert all(ratio >= 1.0 for ratio in over.values())


def test_synthetic_sets_are_reproducible_and_named_so() -> None:
    assert set(FLAGS.values()) == set(LOADERS)
    for name in LOADERS:
        first, second = (synthetic(name, 30, seed=1) for _ in range(2))
        assert len(first.prompts) == 30 and first.label == f"{name}-like (synthetic)"
        assert all((a == b).all() for a, b in zip(first.prompts, second.prompts, strict=True))
    law = law_of(matches(synthetic("QuALITY", 100, 0).prompts, 64))
    assert 6_000 < law.mean_depth < 7_400


def test_real_files_come_through_the_loader(tmp_path: Path) -> None:
    """Three questions on one article of 300 bytes share it and the blank line."""
    record = {"article": "a" * 300, "questions": [{"question": q * 70} for q in "xyz"]}
    (tmp_path / "q.jsonl").write_text(json.dumps(record))
    dataset = from_files("QuALITY", [tmp_path / "q.jsonl"], None, 10, 0)
    assert (dataset.label, dataset.note) == ("QuALITY (3 requests)", "real text")
    assert [match.overlap_depth for match in matches(dataset.prompts, 9)] == [302, 302]


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, one JSON object as last line and on disk, a page whose figures are well formed."""
    record = {"article": "a" * 3000, "questions": [{"question": q * 70} for q in "uvwxyz"]}
    (tmp_path / "q.jsonl").write_text(json.dumps(record))
    sizes = ["--limit", "40", "--entries", "1,4", "--budgets", "1,4", "--seeds", "1"]
    places = ["--output", str(tmp_path / "p.json"), "--report", str(tmp_path / "page")]
    given = ["--quality", str(tmp_path / "q.jsonl"), "--drift-requests", "100"]
    assert main([*sizes, *places, *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result == json.loads((tmp_path / "p.json").read_text())
    assert str(tmp_path) not in lines[-1] and "--quality q.jsonl" in result["command"]
    assert result["without_real_data"] == ["NarrativeQA", "System prompts"]
    assert [row["synthetic"] for row in result["laws"]] == [False, True, True]
    known = [r for r in result["entries"] if r["placement"] == "dp, law known"]
    assert known[0]["dataset"] == "QuALITY (6 requests)"
    assert (known[0]["overlap_tokens"], known[0]["replay_tokens"]) == (5 * 3002, 0)
    assert "## Claims, and what came out here" in lines
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    drawn = re.findall(r"<svg.*?</svg>", page)
    assert len(drawn) == 3 * 3 + 1
    for figure in drawn:
        ElementTree.fromstring(figure)
    assert not any(word in page for word in ("<script", "<link", "http", "src="))


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quality", str(tmp_path / "none.jsonl"), "--limit", "20"]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def entry(placement: str, replay_tokens: int, checkpoints: float = 1.0) -> EntryRow:
    return EntryRow("x", 1, 1, placement, 100, replay_tokens, None, checkpoints, 0.0)
