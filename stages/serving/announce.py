"""What happens to a service, told to whoever watches it: log, metrics, service manager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from stages.engine.verification import Verification
from stages.gateway import logs
from stages.gateway.metrics import Metrics
from stages.gateway.served import Checkpoint, ServedState
from stages.serving.notify import Notifier

STATUS_EVERY_S = 1.0

Update = Callable[[Path], Awaitable[Verification]]


class Announcer:
    """Of one `rtrl serve`.

    Attributes:
        metrics: set once there is a gateway.
        engines: what the live arm's engines serve.
        up: whether it has become ready and not begun to end.
    """

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier
        self.metrics: Metrics | None = None
        self.engines: list[ServedState] = []
        self.up = False
        self._said = ""

    def ready(self) -> None:
        """Requests are answered from now on."""
        self.up = True
        self._said = self.status()
        self.notifier.ready(self._said)
        logs.event("ready", line=self.engines[0].line, checkpoint=self.engines[0].checkpoint.digest)

    def updating(self, update: Update) -> Update:
        """`update` with the service manager knowing about it."""

        async def told(path: Path, **how: bool) -> Verification:
            self.notifier.reloading("new weights are loaded and verified")
            try:
                return await update(path, **how)
            finally:
                self.notifier.ready(self.status())

        return told

    def swapped(self, outcome: str, target: Checkpoint, seconds: float) -> None:
        """A swap has ended."""
        done = outcome == "done"
        if self.metrics is not None:
            self.metrics.deployment("swap", outcome, seconds if done else None)
        self._deployment("swap", outcome, target, ms=round(seconds * 1000, 3))

    def canary(self, outcome: str, checkpoint: Checkpoint) -> None:
        """A canary was opened, closed, or could not be opened."""
        if self.metrics is not None:
            self.metrics.deployment("canary", outcome)
        self._deployment("canary", outcome, checkpoint)

    def draining(self, accepted: int, limit_s: float, ending_s: float) -> None:
        """It was told to end."""
        self.up = False
        self.notifier.stopping(f"{accepted} requests in flight finish", ending_s)
        logs.event("drain", accepted=accepted, limit_s=limit_s)

    def drained(self, cut: int) -> None:
        """All accepted requests are answered, or `cut` of them were cut short."""
        logs.event("drained", logging.WARNING if cut else logging.INFO, cut_short=cut)
        self.notifier.status("the engine stops")

    def status(self) -> str:
        """One line about the engines."""
        first = self.engines[0]
        states = [
            f"{each.name} {each.engine}".strip() + ", failing" * (each.health.breaker.state != "closed")
            for each in self.engines
        ]
        shown = f"{first.model} is {first.checkpoint.digest[:19]} of line {first.line}"
        return f"engine {'; '.join(states)}; {shown}"

    async def keep(self) -> None:
        """Signs of life and status for the service manager, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.notifier.keep_alive())
            tasks.create_task(self._keep_status())

    async def _keep_status(self) -> None:
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            if self.up and (status := self.status()) != self._said:
                self._said = status
                self.notifier.status(status)

    def _deployment(self, kind: str, outcome: str, target: Checkpoint, **more: float) -> None:
        good = outcome in ("done", "opened", "closed")
        level = logging.INFO if good else logging.ERROR
        names = {"checkpoint": target.digest, "deployment": target.deployment}
        logs.event("deployment", level, kind=kind, outcome=outcome, **names, **more)
