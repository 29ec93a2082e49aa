"""Sums over a run, the comparison of two runs, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from examples.demo.measure import Measurement, Run
from examples.demo.workload import GROUPS

_COLUMNS = (
    ("requests", "requests"),
    ("prompt", "prompt_tokens"),
    ("matched KV", "matched_tokens"),
    ("resumed", "resumed_tokens"),
    ("recomputed", "recomputed_tokens"),
    ("prefilled", "prefilled_tokens"),
    ("TTFT p50", "ttft_p50_s"),
    ("TTFT p95", "ttft_p95_s"),
    ("captures", "captures"),
)


@dataclass(frozen=True)
class Summary:
    """Sums over requests; recomputed = matched - resumed, prefilled = prompt - resumed."""

    requests: int
    prompt_tokens: int
    matched_tokens: int
    resumed_tokens: int
    recomputed_tokens: int
    prefilled_tokens: int
    ttft_p50_s: float
    ttft_p95_s: float
    captures: int  # checkpoints beyond those that SGLang itself stores


@dataclass(frozen=True)
class Agreement:
    """Whether two runs of the same requests gave the same answers."""

    differing: tuple[str, ...]  # names of the requests whose token ids differ
    max_logprob_difference: float  # over all output tokens at equal positions

    @property
    def identical(self) -> bool:
        return not self.differing


def summarize(measurements: Sequence[Measurement]) -> Summary:
    """Sums and TTFT percentiles; at least one measurement."""
    prompt = sum(m.prompt_tokens for m in measurements)
    resumed = sum(m.resumed_tokens for m in measurements)
    median, high = np.percentile([m.answer.ttft_s for m in measurements], [50, 95])
    return Summary(
        requests=len(measurements),
        prompt_tokens=prompt,
        matched_tokens=sum(m.matched_tokens for m in measurements),
        resumed_tokens=resumed,
        recomputed_tokens=sum(m.recomputed_tokens for m in measurements),
        prefilled_tokens=prompt - resumed,
        ttft_p50_s=round(float(median), 3),
        ttft_p95_s=round(float(high), 3),
        captures=sum(len(m.own_depths or ()) for m in measurements),
    )


def by_group(run: Run) -> dict[str, Summary]:
    """A summary of each kind of traffic."""
    return {
        group: summarize([m for m in run.measurements if m.request.group == group])
        for group in GROUPS
    }


def compare(stock: Run, ours: Run) -> Agreement:
    """Token ids must be equal; logprobs are compared where they are."""
    differing = []
    largest = 0.0
    for left, right in zip(stock.measurements, ours.measurements, strict=True):
        assert left.request == right.request
        if left.answer.output_ids != right.answer.output_ids:
            differing.append(left.request.name)
            continue
        pairs = zip(left.answer.logprobs, right.answer.logprobs, strict=True)
        largest = max([largest, *(abs(a - b) for a, b in pairs)])
    return Agreement(tuple(differing), largest)


def format_table(stock: Run, ours: Run) -> str:
    """One line a server for all requests, then one for each kind of traffic."""
    heads = ["", *(head for head, _ in _COLUMNS)]
    lines = [heads]
    groups = {"all": (summarize(stock.measurements), summarize(ours.measurements))}
    stock_groups, our_groups = by_group(stock), by_group(ours)
    groups |= {f"of which {name}": (stock_groups[name], our_groups[name]) for name in GROUPS}
    for name, pair in groups.items():
        for server, summary in zip(("stock", "spc"), pair, strict=True):
            values = asdict(summary)
            cells = [_spell(values[field]) for _, field in _COLUMNS]
            if server == "stock":
                cells[-1] = "-"
            lines.append([f"{name}: {server}", *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def as_json(stock: Run, ours: Run, agreement: Agreement) -> dict[str, Any]:
    """The last line of the demo."""
    sides = {
        name: asdict(summarize(run.measurements))
        | {"groups": {group: asdict(part) for group, part in by_group(run).items()}}
        for name, run in (("stock", stock), ("spc", ours))
    }
    return {
        **sides,
        "outputs_identical": agreement.identical,
        "max_logprob_difference": agreement.max_logprob_difference,
    }


def _spell(value: int | float) -> str:
    return f"{value:.2f} s" if isinstance(value, float) else f"{value:,}"
