"""Metrics that are read off when somebody asks: engines, queues, the spool. Counted ones: `metrics.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stages.spool import segment

if TYPE_CHECKING:
    from stages.gateway.admission import Admission
    from stages.gateway.arms import Arms
    from stages.gateway.served import ServedState
    from stages.spool import SpoolWriter

BREAKER = {"closed": 0, "half_open": 1, "open": 2}
_SIZE_EVERY_S = 10.0  # it looks at every segment file

_OF_ARM: dict[str, tuple[str, Callable[[ServedState], float]]] = {
    "rtrl_in_flight": ("Generations in flight", lambda s: s.gate.in_flight),
    "rtrl_held": ("Requests waiting for a swap", lambda s: s.gate.waiting),
    "rtrl_engine_ready": ("1 when the engine serves", lambda s: s.engine == "ready"),
    "rtrl_engine_probe_failures": ("Failed health probes in a row", lambda s: s.health.probe_failures),
    "rtrl_engine_probe_seconds": ("Time of the last good probe", lambda s: s.health.probe_ms / 1000),
    "rtrl_breaker_state": ("0 closed, 1 half open, 2 open", lambda s: BREAKER[s.health.breaker.state]),
}


class Gauges:
    """Of one gateway. `admission` and `arms` are None where there is only a spool to look at."""

    def __init__(self, spool: SpoolWriter, served: ServedState) -> None:
        self.admission: Admission | None = None
        self.arms: Arms | None = None
        self._spool = spool
        self._served = served
        self._size = (0.0, 0)  # when, bytes

    def families(self) -> Iterator[Metric]:
        """All of them, as they are now."""
        yield from self._of_arms()
        yield from self._of_spool()
        if self.admission is not None:
            yield from _of_admission(self.admission)

    def _of_arms(self) -> Iterator[Metric]:
        served = [self._served] if self.arms is None else self.arms.served()
        for name, (what, read) in _OF_ARM.items():
            gauge = GaugeMetricFamily(name, what, labels=["arm"])
            for one in served:
                gauge.add_metric([self._name(one)], read(one))
            yield gauge
        starts = CounterMetricFamily("rtrl_engine_starts", "Starts of the engine", labels=["arm"])
        opened = CounterMetricFamily("rtrl_breaker_opened", "Times the breaker opened", labels=["arm"])
        labels = ["arm", "line", "model", "checkpoint", "deployment"]
        info = GaugeMetricFamily("rtrl_serving_info", "What is served; always 1", labels=labels)
        for one in served:
            starts.add_metric([self._name(one)], one.health.starts)
            opened.add_metric([self._name(one)], one.health.breaker.opened)
            checkpoint = one.checkpoint
            info.add_metric([one.label, one.line, one.model, checkpoint.digest, checkpoint.deployment], 1)
        yield from (starts, opened, info)
        if self.arms is not None:
            waiting = GaugeMetricFamily("rtrl_waiting", "Requests waiting for the engine", labels=["arm"])
            for arm in self.arms.all():
                waiting.add_metric([self._name(arm.served)], arm.engine.waiting)
            yield waiting

    def _name(self, served: ServedState) -> str:
        """Of an arm; with its line before it where that is a population's."""
        return served.label if served.line == self._served.line else f"{served.line}/{served.label}"

    def _of_spool(self) -> Iterator[Metric]:
        spool = self._spool
        records, seconds = spool.lag
        if time.monotonic() - self._size[0] > _SIZE_EVERY_S:
            self._size = time.monotonic(), segment.size(spool.folder)
        for name, what, value in (
            ("rtrl_spool_last_seq", "Number of the last record", spool.last_seq),
            ("rtrl_spool_bytes", "Bytes of the segment files", self._size[1]),
            ("rtrl_spool_unsynced", "Records that a power cut would lose now", records),
            ("rtrl_spool_lag_seconds", "How long the oldest of them has been one", seconds),
            ("rtrl_spool_pending_events", "Events waiting for their generation", spool.pending),
            ("rtrl_spool_failed", "1 when the spool's disk failed", spool.failed is not None),
            ("rtrl_spool_recovered", "Damaged stretches found at the start", len(spool.recovered)),
        ):
            yield GaugeMetricFamily(name, what, value=value)


def _of_admission(admission: Admission) -> Iterator[Metric]:
    for name, what, value in (
        ("rtrl_accepted", "Generations accepted and not answered yet", admission.accepted),
        ("rtrl_accepted_limit", "More get 429", admission.places.places),
        ("rtrl_streams", "Streamed answers that are open", admission.streams.taken),
        ("rtrl_draining", "1 while the gateway shuts down", admission.draining),
    ):
        yield GaugeMetricFamily(name, what, value=value)
