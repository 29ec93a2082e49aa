"""Line plots as inline SVG: nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 64, 130, 16, 44
_COLOURS = ("#1b6ca8", "#c0392b", "#218c5b", "#8e44ad", "#b9770e", "#16a085", "#7f8c8d", "#2c3e50")
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high`, with named ticks."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = log10(low), log10(high), log10(value)
        return (value - low) / (high - low) if high > low else 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one name, in the axes' values; alone or joined by a line."""

    name: str
    points: Sequence[Point]
    joined: bool = True
    dots: bool = True


def percent(label: str = "") -> Axis:
    """Shares 0..1, written in percent."""
    return Axis(label, 0.0, 1.0, tuple((p / 100, f"{p} %") for p in (0, 25, 50, 75, 100)))


def categories(label: str, names: Sequence[object]) -> Axis:
    """Evenly spaced; the i-th name is at the value i."""
    ticks = tuple((float(i), str(name)) for i, name in enumerate(names))
    return Axis(label, 0.0, max(1.0, len(names) - 1.0), ticks)


def linear(label: str, values: Iterable[float]) -> Axis:
    """From 0 to a little above the largest value."""
    high = max(values, default=0.0) or 1.0
    step: float = 10 ** floor(log10(high))
    step = next(s for s in (step, step / 2, step / 5) if high / s >= 3 or s == step / 5)
    ticks = [step * i for i in range(int(high / step) + 1)]
    return Axis(label, 0.0, high * 1.05, tuple((t, f"{t:,g}") for t in ticks))


def logarithmic(label: str, values: Iterable[float]) -> Axis:
    """Around the positive values, with ticks at 1, 2 and 5 times powers of ten."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.2, max(positive) * 1.2
    tens = range(floor(log10(low)), floor(log10(high)) + 1)
    # 2 and 5 only where there is room for their names
    heads = (1, 2, 5) if len(tens) <= 4 else (1,)
    ticks = (head * 10.0**power for power in tens for head in heads)
    return Axis(label, low, high, tuple((t, _short(t)) for t in ticks if low <= t <= high), True)


def draw(curves: Sequence[Curve], across: Axis, up: Axis) -> str:
    """One `<svg>`; the name of each curve stands at its last point."""
    grid = ""
    for value, text in up.ticks:
        y = _y(up.place(value))
        grid += (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        )
    for value, text in across.ticks:
        x = _x(across.place(value))
        grid += (
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{escape(text)}</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = escape(" — ".join(text for text in (across.label, up.label) if text))
    grid += f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>'
    shapes = "".join(_curve(curve, across, up, i) for i, curve in enumerate(curves))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{grid}{shapes}</svg>'


def _curve(curve: Curve, across: Axis, up: Axis, index: int) -> str:
    colour = _COLOURS[index % len(_COLOURS)]
    places = [(_x(across.place(x)), _y(up.place(y))) for x, y in curve.points]
    if not places:
        return ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    line = f'<polyline points="{path}" fill="none" stroke="{colour}"/>' if curve.joined else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    x, y = places[-1]
    return (
        f'<g fill="{colour}">{line}{dots if curve.dots else ""}'
        f'<text x="{x + 7:.1f}" y="{y + 4:.1f}">{escape(curve.name)}</text></g>'
    )


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _short(value: float) -> str:
    """1, 200, 5k, 20M: a tick's name."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
