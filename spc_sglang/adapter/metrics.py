"""Our counters on SGLang's Prometheus endpoint, as `sglang:spc_<counter>_total`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields

from spc_sglang.planning.counters import CacheCounters


class PrometheusCounters:
    """Sums since start; `labels` are those that SGLang gives its radix-cache metrics."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        # reads PROMETHEUS_MULTIPROC_DIR when imported, which SGLang sets before
        from prometheus_client import Counter

        self._reported = CacheCounters()
        self._series = {
            field.name: Counter(
                f"sglang:spc_{field.name}",
                f"spc-sglang: {field.name.replace('_', ' ')} since start.",
                labelnames=tuple(labels),
            ).labels(**labels)
            for field in fields(CacheCounters)
        }

    def report(self, counters: CacheCounters) -> None:
        """Add what is new since the last call."""
        before, now = asdict(self._reported), asdict(counters)
        for name, series in self._series.items():
            if now[name] > before[name]:
                series.inc(now[name] - before[name])
        self._reported = CacheCounters(**now)
