"""One static HTML page of a replay: table and plots, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from spc_sglang.replay import pareto, plot
from spc_sglang.replay.metrics import Row
from spc_sglang.replay.plot import Curve

STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:right}
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f6f8}
svg text{font:12px system-ui,sans-serif}pre{background:#f4f6f8;padding:.6em;white-space:pre-wrap}"""


def write(directory: Path, rows: Sequence[Row], about: dict[str, object]) -> Path:
    """Write `index.html` into the directory (made if missing) and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "index.html"
    page.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>spc-sglang replay</title>"
        f"<style>{STYLE}</style><h1>What each policy would have resumed</h1>"
        f"<p>{about['requests']} requests, format {escape(str(about['format']))}, blocks of "
        f"{about['block_tokens']} tokens, one request after the other.</p>"
        f"<pre>{escape(str(about['command']))}</pre>"
        f"<h2>Share of KV-reusable tokens resumed</h2>{_share_plot(rows)}"
        f"<h2>What it costs in captures</h2>{_capture_plot(rows)}"
        f"<h2>What it holds in checkpoints</h2>{_front_plot(rows, 'checkpoints', 'checkpoints')}"
        f"{_bytes_section(rows, about)}<h2>Figures</h2>{_table(rows)}",
        encoding="utf-8",
    )
    return page


def _table(rows: Sequence[Row]) -> str:
    names = ("policy", "slots", "share %", "recomputed / bound", "lost p50", "lost p95", "lost p99")
    head = "".join(f"<th>{name}" for name in (*names, "captures / request", "read back", "held MB"))
    body = "".join(
        f"<tr><td>{escape(r.policy)}<td>{r.slots}<td>{100 * r.share:.1f}"
        f"<td>{r.recomputed_over_bound:.2f}<td>{r.lost_p50_tokens}<td>{r.lost_p95_tokens}"
        f"<td>{r.lost_p99_tokens}<td>{r.captures_per_request:.2f}<td>{r.read_back_share:.2f}"
        f"<td>{'' if r.held_bytes is None else f'{r.held_bytes / 1e6:,.0f}'}"
        for r in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _bytes_section(rows: Sequence[Row], about: dict[str, object]) -> str:
    if all(row.held_bytes is None for row in rows):
        return ""
    plotted = _front_plot(rows, "bytes", f"bytes of KV and checkpoints, {about['model']}")
    return f"<h2>What it holds in bytes</h2>{plotted}"


def _share_plot(rows: Sequence[Row]) -> str:
    """Share against pool size, one line a policy."""
    pools = sorted({row.slots for row in rows})
    curves = [
        Curve(name, sorted((pools.index(r.slots), r.share) for r in rows if r.policy == name))
        for name in dict.fromkeys(row.policy for row in rows)
    ]
    return plot.draw(curves, plot.categories("slots", pools), plot.percent())


def _capture_plot(rows: Sequence[Row]) -> str:
    """Share against captures a request (log scale) at the smallest pool."""
    pool = min(row.slots for row in rows)
    shown = [row for row in rows if row.slots == pool and row.captures_per_request > 0]
    curves = [Curve(r.policy, [(r.captures_per_request, r.share)]) for r in shown]
    label = f"captures a request, {pool} slots"
    across = plot.logarithmic(label, [row.captures_per_request for row in shown])
    return plot.draw(curves, across, plot.percent())


def _front_plot(rows: Sequence[Row], cost: str, label: str) -> str:
    """Every row by what it holds (log scale), and the line of those that no other one beats."""
    name = pareto.COSTS[cost]
    best = pareto.front(rows, cost)
    kept = {id(row) for row in best}
    shown = [row for row in rows if getattr(row, name) and row.policy not in pareto.BOUNDS]
    points = [(getattr(row, name), row.share) for row in best if getattr(row, name)]
    curves = [Curve("", points, dots=False)]
    curves += [
        Curve(f"{row.policy} {row.slots}" if id(row) in kept else "", [(held, row.share)])
        for row in shown
        for held in [getattr(row, name)]
    ]
    across = plot.logarithmic(label, [getattr(row, name) for row in shown])
    return plot.draw(curves, across, plot.percent())
