"""The tables as Markdown, and one HTML page with them and the figures."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.published.drift import DriftRow
from benchmarks.published.laws import FactorRow
from benchmarks.published.serving import EntryRow, front
from spc_sglang.placement import OverlapWeights
from spc_sglang.replay import plot
from spc_sglang.replay.plot import Curve
from spc_sglang.replay.report import STYLE

Tables = Mapping[str, Sequence[Any]]
LAW_BINS = 40


def numbers(text: str) -> tuple[int, ...]:
    """An argument of whole numbers with commas: increasing, without repeats, at least 1."""
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: need whole numbers with commas") from None
    if found[0] < 1:
        raise ArgumentTypeError(f"{found[0]}: need at least 1")
    return found


def markdown(title: str, rows: Sequence[Any], shown: Callable[[Any], str] | None = None) -> str:
    """A heading and a table with a column a field; `shown` is `cell` unless given."""
    shown = shown or cell
    if not rows:
        return f"## {title}\n\nno rows\n"
    names = list(asdict(rows[0]))
    lines = [f"## {title}\n", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(map(shown, asdict(row).values())) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """Yes and no, thousands with commas, None as what it means in a factor."""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if value is None:
        return "all saved"
    if isinstance(value, tuple | list):
        return " ".join(map(cell, value))
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def write(
    directory: Path, command: str, tables: Tables, laws: Mapping[str, OverlapWeights]
) -> Path:
    """Write `index.html` into the directory (made if missing) and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "index.html"
    figures = [
        *(_law_figure(name, law) for name, law in laws.items()),
        *(_factor_figure(name, tables["factors"]) for name in laws),
        *(_front_figure(name, tables["entries"]) for name in laws),
        _drift_figure(tables["drift"]),
    ]
    body = "".join(f"<h2>{escape(title)}</h2>{drawn}" for title, drawn in figures)
    body += "".join(f"<h2>{escape(name)}</h2>{_table(rows)}" for name, rows in tables.items())
    page.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Sparse prefix caching</title>"
        f"<style>{STYLE}</style><h1>The published evaluation, redone</h1>"
        f"<pre>{escape(command)}</pre>{body}",
        encoding="utf-8",
    )
    return page


def _table(rows: Sequence[Any]) -> str:
    if not rows:
        return "<p>no rows</p>"
    head = "".join(f"<th>{escape(name)}" for name in asdict(rows[0]))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(v))}" for v in asdict(row).values()) for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _law_figure(name: str, law: OverlapWeights) -> tuple[str, str]:
    """Share of the overlaps in each of forty equal bins of depth."""
    width = law.length / LAW_BINS
    shares = [0.0] * LAW_BINS
    for depth, weight in zip(law.depths.tolist(), law.weights.tolist(), strict=True):
        shares[min(LAW_BINS - 1, int(depth / width))] += weight / law.total
    curve = Curve("", [((i + 0.5) * width, share) for i, share in enumerate(shares)], dots=False)
    across = plot.linear("overlap depth, tokens", [law.length])
    return f"Overlap law: {name}", plot.draw([curve], across, plot.percent("share of overlaps"))


def _factor_figure(name: str, rows: Sequence[FactorRow]) -> tuple[str, str]:
    shown = [row for row in rows if row.dataset == name and row.factor]
    curves = [
        Curve(p, [(r.checkpoints, r.factor or 0.0) for r in shown if r.placement == p])
        for p in dict.fromkeys(row.placement for row in shown)
    ]
    across = plot.logarithmic("checkpoints", [row.checkpoints for row in shown])
    up = plot.logarithmic("E[T] / E[replay]", [row.factor or 1.0 for row in shown])
    return f"Reduction factor on the law: {name}", plot.draw(curves, across, up)


def _front_figure(name: str, rows: Sequence[EntryRow]) -> tuple[str, str]:
    """Replay against checkpoints with the most entries, and the front."""
    most = max(row.entries for row in rows)
    shown = [row for row in rows if row.dataset == name and row.entries == most]
    curves = [Curve("front", [_held(row) for row in front(shown)], dots=False)]
    curves += [
        Curve(p, [_held(row) for row in shown if row.placement == p], joined=False)
        for p in dict.fromkeys(row.placement for row in shown)
    ]
    points = [_held(row) for row in shown]
    across = plot.logarithmic("checkpoints an entry", [x for x, _ in points])
    up = plot.logarithmic("replayed share of the overlap", [y for _, y in points])
    return f"Pareto front, last {most} entries: {name}", plot.draw(curves, across, up)


def _held(row: EntryRow) -> tuple[float, float]:
    """At least one token in a million, so that a log scale has a place for none."""
    return row.checkpoints_per_entry, max(1e-6, row.replay_tokens / row.overlap_tokens)


def _drift_figure(rows: Sequence[DriftRow]) -> tuple[str, str]:
    motions = list(dict.fromkeys(row.motion for row in rows))
    curves = [
        Curve(n, [(motions.index(r.motion), r.over_oracle) for r in rows if r.estimator == n])
        for n in dict.fromkeys(row.estimator for row in rows)
    ]
    names = [motion.split(":")[0] for motion in motions]
    up = plot.logarithmic("replay over that of the known law", [r.over_oracle for r in rows])
    return "Drift", plot.draw(curves, plot.categories("", names), up)
