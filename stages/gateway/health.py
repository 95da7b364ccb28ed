"""What is known of one engine's health: its probe's last answers, its breaker, how often it was started.

Written by whoever probes it (`stages/serving/supervisor.py`) and by the requests it gets
(`engine_client.py`); read by the metrics, the admin listener, and whoever decides about it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from stages.gateway import logs
from stages.gateway.breaker import Breaker
from stages.gateway.config import BreakerConfig


@dataclass
class Health:
    """Of one engine.

    Attributes:
        probe_failures: probes in a row without a good answer.
        probe_ms: how long the last good answer took, milliseconds.
        starts: how often the engine was started; the first time included.
    """

    breaker: Breaker = field(default_factory=lambda: Breaker(BreakerConfig()))
    probe_failures: int = 0
    probe_ms: float = 0.0
    starts: int = 0

    @classmethod
    def of(cls, config: BreakerConfig, arm: str) -> Health:
        """Of the engine of an arm; what its breaker does is logged."""

        def told(state: str, reason: str) -> None:
            level = logging.WARNING if state == "open" else logging.INFO
            logs.event("breaker", level, arm=arm, state=state, reason=reason)

        return cls(Breaker(config, told))

    def as_dict(self) -> dict[str, Any]:
        """For the admin listener."""
        return {
            "breaker": self.breaker.as_dict(),
            "probe_failures": self.probe_failures,
            "probe_ms": round(self.probe_ms, 3),
            "starts": self.starts,
        }
