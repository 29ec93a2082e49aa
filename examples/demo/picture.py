"""A picture of the run: how far each prompt was known, and where each server resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.demo.measure import Measurement, Run

INCHES_PER_REQUEST = 0.22


def draw(stock: Run, ours: Run, path: Path) -> None:
    """Write a PNG: one bar a request, in the order of sending; stock left, spc right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = len(ours.measurements)
    figure, panels = pyplot.subplots(
        1, 2, sharey=True, figsize=(14, 2 + INCHES_PER_REQUEST * count), layout="constrained"
    )
    _bars(panels[0], stock.measurements, "stock")
    _bars(panels[1], ours.measurements, "spc")
    captured = [
        (depth, row)
        for row, measurement in enumerate(ours.measurements)
        for depth in measurement.own_depths or ()
    ]
    depths, rows = zip(*captured, strict=True) if captured else ((), ())
    panels[1].plot(depths, rows, "|", color="black", markersize=7, label="checkpoint captured")
    panels[0].set_yticks(range(count), [m.request.name for m in ours.measurements], fontsize=7)
    panels[0].invert_yaxis()
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bars(panel: Any, measurements: Sequence[Measurement], name: str) -> None:
    rows = range(len(measurements))
    parts = (
        ("new", "#c9d3de", [m.prompt_tokens for m in measurements]),
        ("matched, computed again", "#e07b39", [m.matched_tokens for m in measurements]),
        ("resumed", "#5aa469", [m.resumed_tokens for m in measurements]),
    )
    for label, colour, lengths in parts:
        panel.barh(rows, lengths, color=colour, label=label, height=0.8)
    recomputed = sum(m.recomputed_tokens for m in measurements)
    panel.set_title(f"{name}: {recomputed:,} matched tokens computed again", fontsize=10)
    panel.set_xlabel("depth in the prompt, tokens")
