"""Asking an engine for its health, and noting the answer.

Not here: what follows from it (`supervisor.py`, `outside.py`).
"""

from __future__ import annotations

import time
from typing import Protocol

from stages.engine.questions import Health
from stages.gateway import health as state


class Probed(Protocol):
    """What answers health probes."""

    async def health(self) -> Health:
        """See `EngineControl.health`."""


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
