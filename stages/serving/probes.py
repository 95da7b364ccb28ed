"""Asking an engine for its health, and noting the answer.

Not here: what follows from it (`supervisor.py`, `outside.py`).
"""

from __future__ import annotations

import time
from typing import Protocol

from stages.engine.questions import Health
from stages.gateway import health as state
from stages.records import CANARY


class Probed(Protocol):
    """What answers health probes."""

    async def health(self) -> Health:
        """See `EngineControl.health`."""


def failing(health: state.Health, arm: str, limit_s: float) -> str:
    """Why what an engine answers says that it cannot go on, "" when it can. There is no second chance for a
    canary: its users have another engine.

    Args:
        limit_s: how long its breaker may stay open.
    """
    breaker = health.breaker
    if arm == CANARY and breaker.state == "open":
        return breaker.reason
    if breaker.failing_s > limit_s:
        return f"it has failed for {breaker.failing_s:.0f} s: {breaker.reason}"
    return ""


async def probe(engine: Probed, health: state.Health, failures: int) -> Health:
    """Ask once and note the answer; so many failures in a row open the breaker."""
    began = time.monotonic()
    answer = await engine.health()
    if answer == "ok":
        health.probe_failures, health.probe_ms = 0, (time.monotonic() - began) * 1000
    else:
        health.probe_failures += 1
        if health.probe_failures >= failures:
            health.breaker.trip(f"{health.probe_failures} health probes in a row failed")
    return answer
