"""One static HTML page of a replay: table and plots, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log
from pathlib import Path

from spc_sglang.replay.metrics import Row

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 56, 130, 16, 44
_COLOURS = ("#1b6ca8", "#c0392b", "#218c5b", "#8e44ad", "#b9770e", "#16a085", "#7f8c8d", "#2c3e50")
_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:right}
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f6f8}
svg text{font:12px system-ui,sans-serif}pre{background:#f4f6f8;padding:.6em;white-space:pre-wrap}"""
Point = tuple[float, float]


def write(directory: Path, rows: Sequence[Row], about: dict[str, object]) -> Path:
    """Write `index.html` into the directory (made if missing) and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "index.html"
    page.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>spc-sglang replay</title>"
        f"<style>{_STYLE}</style><h1>What each policy would have resumed</h1>"
        f"<p>{about['requests']} requests, format {escape(str(about['format']))}, blocks of "
        f"{about['block_tokens']} tokens, one request after the other.</p>"
        f"<pre>{escape(str(about['command']))}</pre>"
        f"<h2>Share of KV-reusable tokens resumed</h2>{_share_plot(rows)}"
        f"<h2>What it costs in captures</h2>{_capture_plot(rows)}<h2>Figures</h2>{_table(rows)}",
        encoding="utf-8",
    )
    return page


def _table(rows: Sequence[Row]) -> str:
    names = ("policy", "slots", "share %", "recomputed / bound", "lost p50", "lost p95", "lost p99")
    head = "".join(f"<th>{name}" for name in (*names, "captures / request", "read back"))
    body = "".join(
        f"<tr><td>{escape(r.policy)}<td>{r.slots}<td>{100 * r.share:.1f}"
        f"<td>{r.recomputed_over_bound:.2f}<td>{r.lost_p50_tokens}<td>{r.lost_p95_tokens}"
        f"<td>{r.lost_p99_tokens}<td>{r.captures_per_request:.2f}<td>{r.read_back_share:.2f}"
        for r in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _share_plot(rows: Sequence[Row]) -> str:
    """Share against pool size, one line a policy."""
    pools = sorted({row.slots for row in rows})
    place = {pool: i / max(1, len(pools) - 1) for i, pool in enumerate(pools)}
    shapes = []
    for index, name in enumerate(dict.fromkeys(row.policy for row in rows)):
        points = [(place[row.slots], row.share) for row in rows if row.policy == name]
        shapes.append(_line(name, sorted(points), index))
    ticks = [(place[pool], str(pool)) for pool in pools]
    return _frame(shapes, ticks, "slots")


def _capture_plot(rows: Sequence[Row]) -> str:
    """Share against captures a request (log scale) at the smallest pool."""
    pool = min(row.slots for row in rows)
    shown = [row for row in rows if row.slots == pool and row.captures_per_request > 0]
    low = min((r.captures_per_request for r in shown), default=1.0) / 1.2
    high = max((r.captures_per_request for r in shown), default=2.0) * 1.2
    scale = log(high / low)
    shapes = [
        _line(row.policy, [(log(row.captures_per_request / low) / scale, row.share)], index)
        for index, row in enumerate(shown)
    ]
    ticks = [
        (log(value / low) / scale, f"{value:g}")
        for value in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
        if low <= value <= high
    ]
    return _frame(shapes, ticks, f"captures a request, {pool} slots")


def _line(name: str, points: Sequence[Point], index: int) -> str:
    colour = _COLOURS[index % len(_COLOURS)]
    places = [_place(*point) for point in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    x, y = places[-1]
    return (
        f'<g fill="{colour}"><polyline points="{path}" fill="none" stroke="{colour}"/>{dots}'
        f'<text x="{x + 7:.1f}" y="{y + 4:.1f}">{escape(name)}</text></g>'
    )


def _frame(shapes: Sequence[str], ticks: Sequence[tuple[float, str]], label: str) -> str:
    grid = ""
    for percent in (0, 25, 50, 75, 100):
        x, y = _place(0.0, percent / 100)
        grid += (
            f'<line x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>'
            f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{percent} %</text>'
        )
    for at, text in ticks:
        x, y = _place(at, 0.0)
        grid += f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{escape(text)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    grid += f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(label)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{grid}{"".join(shapes)}</svg>'


def _place(across: float, share: float) -> Point:
    """Fractions of the plot to pixels."""
    x = LEFT + across * (WIDTH - LEFT - RIGHT)
    return x, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
