"""The gateway's figures in Prometheus form. Names and labels are in `docs/http.md`; no label ever
holds a user, a session or any content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from stages.gateway.served import ServedState
    from stages.spool import SpoolWriter

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OVERHEAD = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Metrics:
    """All metrics of one gateway."""

    def __init__(self, spool: SpoolWriter, served: ServedState) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "rtrl_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "rtrl_request_seconds", "Whole requests", buckets=_SECONDS, registry=registry
        )
        self.overhead = Histogram(
            "rtrl_overhead_seconds",
            "Time of a request not spent waiting for the engine or a swap",
            buckets=_OVERHEAD,
            registry=registry,
        )
        self._generations = Counter(
            "rtrl_generations",
            "Generations recorded, by kind (exact, no_train, defect)",
            ["kind"],
            registry=registry,
        )
        self._unrecorded = Counter(
            "rtrl_unrecorded", "Requests that left no record", ["reason"], registry=registry
        )
        self._events = Counter(
            "rtrl_events", "Events by type and outcome", ["type", "status"], registry=registry
        )
        self._tokens = Counter("rtrl_tokens", "Tokens recorded", ["kind"], registry=registry)
        self._invalid_calls = Counter(
            "rtrl_invalid_tool_calls", "Tool calls that were not valid", registry=registry
        )
        self._bound: dict[tuple[str, ...], Counter] = {}
        self._state(spool, served)

    def request(self, route: str, status: int) -> None:
        """One request was answered."""
        self._counter(self._requests, route, str(status)).inc()

    def generation(self, kind: str, prompt: int, output: int, invalid_calls: int) -> None:
        """One generation was recorded."""
        self._counter(self._generations, kind).inc()
        self._counter(self._tokens, "prompt").inc(prompt)
        self._counter(self._tokens, "output").inc(output)
        if invalid_calls:
            self._invalid_calls.inc(invalid_calls)

    def unrecorded(self, reason: str) -> None:
        """A request got no generation: the engine gave nothing, or the spool took nothing."""
        self._counter(self._unrecorded, reason).inc()

    def event(self, type: str, status: str) -> None:
        """One event was received."""
        self._counter(self._events, type, status).inc()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def _counter(self, counter: Counter, *labels: str) -> Counter:
        key = (counter._name, *labels)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = counter.labels(*labels)
        return bound

    def _state(self, spool: SpoolWriter, served: ServedState) -> None:
        """Figures that are read off when somebody asks."""
        for name, what, read in (
            ("rtrl_in_flight", "Generations in flight", lambda: served.gate.in_flight),
            ("rtrl_held", "Requests waiting for a swap", lambda: served.gate.waiting),
            ("rtrl_engine_ready", "1 when the engine serves", lambda: float(served.engine == "ready")),
            ("rtrl_spool_last_seq", "Seq of the last record", lambda: spool.last_seq),
            ("rtrl_spool_pending_events", "Events waiting for their generation", lambda: spool.pending),
            ("rtrl_spool_failed", "1 when the spool's disk failed", lambda: float(spool.failed is not None)),
            (
                "rtrl_spool_recovered",
                "Damaged stretches found when the gateway started",
                lambda: len(spool.recovered),
            ),
        ):
            Gauge(name, what, registry=self.registry).set_function(read)
