"""The gateway's figures in Prometheus form. Names and labels are in `docs/http.md`; no label ever
holds a user, a session or any content.

Counting is adding to a dictionary; prometheus_client's own counters, with a lock and checks each, took a
seventh of the time the gateway spends on a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stages.gateway.gauges import Gauges

if TYPE_CHECKING:
    from stages.gateway.admission import Admission
    from stages.gateway.arms import Arms
    from stages.gateway.served import ServedState
    from stages.spool import SpoolWriter

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rtrl_requests": ("Requests by route and status", ("route", "status")),
    "rtrl_errors": ("Error answers by code", ("code",)),
    "rtrl_generations": ("Generations recorded, by kind (exact, no_train, defect)", ("kind",)),
    "rtrl_unrecorded": ("Requests that left no record", ("reason",)),
    "rtrl_tokens": ("Tokens recorded", ("kind",)),
    "rtrl_invalid_tool_calls": ("Tool calls that were not valid", ()),
    "rtrl_received": ("Records of other systems, by what became of them", ("kind", "status")),
    "rtrl_events": ("Events by type and outcome", ("type", "status")),
    "rtrl_deployments": ("Changes of what is served, by kind and outcome", ("kind", "outcome")),
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEAD = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Histogram:
    """Counts of values up to each of `bounds`, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """In Prometheus' form: cumulative."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        return buckets

    def family(self, name: str, what: str) -> HistogramMetricFamily:
        """On its own, without labels."""
        return HistogramMetricFamily(name, what, buckets=self.buckets(), sum_value=self.sum)


class Metrics(Collector):
    """All metrics of one gateway; with them those of its process (`process_...`)."""

    def __init__(self, spool: SpoolWriter, served: ServedState) -> None:
        self.routes: dict[str, Histogram] = {}
        self.overhead = Histogram(_OVERHEAD)
        self.first_token = Histogram(_SECONDS)
        self.swap_seconds = Histogram(_SECONDS)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._gauges = Gauges(spool, served)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def watch(self, admission: Admission, arms: Arms) -> None:
        """Show these too."""
        self._gauges.admission, self._gauges.arms = admission, arms

    def request(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._counts["rtrl_requests", route, str(status)] += 1
        histogram = self.routes.get(route)
        if histogram is None:
            histogram = self.routes[route] = Histogram(_SECONDS)
        histogram.observe(seconds)

    def error(self, code: str) -> None:
        """An error was answered."""
        self._counts["rtrl_errors", code] += 1

    def deployment(self, kind: str, outcome: str, seconds: float | None = None) -> None:
        """What is served has changed, or should have."""
        self._counts["rtrl_deployments", kind, outcome] += 1
        if seconds is not None:
            self.swap_seconds.observe(seconds)

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
        whole = HistogramMetricFamily("rtrl_request_seconds", "Whole requests", labels=["route"])
        for route, histogram in list(self.routes.items()):
            whole.add_metric([route], histogram.buckets(), histogram.sum)
        yield whole
        yield self.first_token.family("rtrl_first_token_seconds", "First token of streamed answers")
        yield self.overhead.family(
            "rtrl_overhead_seconds", "Time of a request not spent waiting for the engine or a swap"
        )
        yield self.swap_seconds.family("rtrl_swap_seconds", "Weight updates that worked, waiting included")
        yield from self._gauges.families()
