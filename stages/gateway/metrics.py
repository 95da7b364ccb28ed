"""The gateway's figures in Prometheus form. Names and labels are in `docs/http.md`; no label ever
holds a user, a session or any content.

Counting is adding to a dictionary; prometheus_client's own counters, with a lock and checks each, took a
seventh of the time the gateway spends on a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from stages.gateway.served import ServedState
    from stages.spool import SpoolWriter

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rtrl_requests": ("Requests by route and status", ("route", "status")),
    "rtrl_generations": ("Generations recorded, by kind (exact, no_train, defect)", ("kind",)),
    "rtrl_unrecorded": ("Requests that left no record", ("reason",)),
    "rtrl_tokens": ("Tokens recorded", ("kind",)),
    "rtrl_invalid_tool_calls": ("Tool calls that were not valid", ()),
    "rtrl_received": ("Records of other systems, by what became of them", ("kind", "status")),
    "rtrl_events": ("Events by type and outcome", ("type", "status")),
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEAD = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Histogram:
    """Counts of values up to each of `bounds`, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, what: str) -> HistogramMetricFamily:
        """In Prometheus' form: cumulative."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        return HistogramMetricFamily(name, what, buckets=buckets, sum_value=self._sum)


class Metrics(Collector):
    """All metrics of one gateway."""

    def __init__(self, spool: SpoolWriter, served: ServedState) -> None:
        self.seconds = Histogram(_SECONDS)
        self.overhead = Histogram(_OVERHEAD)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._gauges = _gauges(spool, served)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, route: str, status: int) -> None:
        """One request was answered."""
        self._counts["rtrl_requests", route, str(status)] += 1

    def generation(self, kind: str, prompt: int, output: int, invalid_calls: int) -> None:
        """One generation was recorded."""
        counts = self._counts
        counts["rtrl_generations", kind] += 1
        counts["rtrl_tokens", "prompt"] += prompt
        counts["rtrl_tokens", "output"] += output
        counts["rtrl_invalid_tool_calls",] += invalid_calls

    def unrecorded(self, reason: str) -> None:
        """A request got no generation: the engine gave nothing, or the spool took nothing."""
        self._counts["rtrl_unrecorded", reason] += 1

    def event(self, type: str, status: str) -> None:
        """One event was received."""
        self._counts["rtrl_events", type, status] += 1

    def received(self, kind: str, status: str, n: int) -> None:
        """Records of another system came in."""
        if n:
            self._counts["rtrl_received", kind, status] += n

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        for name, (what, labels) in COUNTERS.items():
            family = CounterMetricFamily(name, what, labels=labels)
            for key, value in list(self._counts.items()):
                if key[0] == name:
                    family.add_metric(key[1:], value)
            yield family
        yield self.seconds.family("rtrl_request_seconds", "Whole requests")
        yield self.overhead.family(
            "rtrl_overhead_seconds", "Time of a request not spent waiting for the engine or a swap"
        )
        for name, (what, read) in self._gauges.items():
            yield GaugeMetricFamily(name, what, value=read())


def _gauges(spool: SpoolWriter, served: ServedState) -> dict[str, tuple[str, Callable[[], float]]]:
    """Figures that are read off when somebody asks."""
    return {
        "rtrl_in_flight": ("Generations in flight", lambda: served.gate.in_flight),
        "rtrl_held": ("Requests waiting for a swap", lambda: served.gate.waiting),
        "rtrl_engine_ready": ("1 when the engine serves", lambda: served.engine == "ready"),
        "rtrl_spool_last_seq": ("Number of the last record", lambda: spool.last_seq),
        "rtrl_spool_pending_events": ("Events waiting for their generation", lambda: spool.pending),
        "rtrl_spool_failed": ("1 when the spool's disk failed", lambda: spool.failed is not None),
        "rtrl_spool_recovered": ("Damaged stretches found at the start", lambda: len(spool.recovered)),
    }
