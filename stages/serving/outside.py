"""An engine that somebody else starts: checked, brought to the served checkpoint, watched.

In the place of a `Supervisor`. It is out of traffic while it does not answer; when it is back it may hold
anything, and gets traffic again once it was verified.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from stages.engine.config import EngineConfig
from stages.engine.update import EngineControl
from stages.engine.verification import Verification
from stages.errors import DependencyDownError, InputMissingError, IntegrityError, RtrlError
from stages.gateway.rolling import Way
from stages.gateway.served import ServedState
from stages.serving.supervisor import POLL_S, Say, probe
from stages.target.config import TargetConfig


class Outside:
    """One such engine.

    Args:
        config: the served engine's settings: name, dtype, patience.
        served: shared with the gateway; `checkpoint` says what it is to hold.
    """

    def __init__(
        self, name: str, target: TargetConfig, config: EngineConfig, served: ServedState, say: Say
    ) -> None:
        self.name, self.target, self.config, self.served = name, target, config, served
        self.key = _token(target.key_file)
        self.verification: Verification | None = None
        self.way = Way("in place, full weights", "it reads the store's folder itself")
        self._say = say
        self.control = EngineControl(self.base_url, self.key, config, served.checkpoint.path)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return self.target.url.rstrip("/")

    async def start(self) -> None:
        """See that it holds the served checkpoint, else load that. Raises RtrlError."""
        checkpoint = self.served.checkpoint
        self.served.engine = "starting"
        try:
            if await self.control.health() != "ok":
                raise DependencyDownError(
                    f"the engine {self.name} at {self.base_url} does not answer",
                    hint=f"start it, or remove [targets.{self.name}]",
                )
            try:
                self.verification = await self.control.verify(checkpoint.path)
            except IntegrityError:
                self.verification = await self.update(checkpoint.path)
        except RtrlError:
            self.served.engine = "down"
            raise
        self.served.health.starts += 1
        self.served.health.probe_failures = 0
        self.served.health.breaker.reset()
        self.served.engine = "ready" if self.served.checkpoint == checkpoint else "unknown"

    async def update(self, path: Path) -> Verification:
        """New weights into it, verified. Raises RtrlError."""
        self.verification = await self.control.update(path)
        return self.verification

    async def watch(self) -> None:
        """Until cancelled: notice that it stopped answering or holds unknown weights, and check it again."""
        every = self.config.health_every_s
        while True:
            if self.served.engine == "ready":
                reason = await self.trouble()
                self.served.engine = "down"
                self._say(f"engine {self.name}: {reason}; trying again every {every:g} s")
            try:
                await self.start()
            except RtrlError as error:
                self._said(error)
                await asyncio.sleep(every)
            else:
                self._say(f"engine {self.name}: ready")

    async def trouble(self) -> str:
        """Return when it cannot go on, with the reason."""
        next_probe = time.monotonic() + self.config.health_every_s
        while True:
            if self.served.engine == "unknown" and not self.served.gate.closed:
                return "its weights could not be verified"
            if time.monotonic() >= next_probe:
                answer = await probe(self.control, self.served.health, self.config.health_failures)
                if answer == "sick":
                    return "its core died"
                if self.served.health.probe_failures >= self.config.health_failures:
                    return "it does not answer"
                next_probe = time.monotonic() + self.config.health_every_s
            await asyncio.sleep(POLL_S)

    async def stop(self, *, patient: bool = True) -> None:
        """Leave it alone from now on."""
        self.served.engine = "down"
        await self.control.close()

    def _said(self, error: RtrlError) -> None:
        if error.message != getattr(self, "_last", ""):
            self._say(f"engine {self.name}: {error.message}")
        self._last = error.message


def _token(path: str) -> str:
    if not path:
        return "none"
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputMissingError(
            f"{path} cannot be read: {error.strerror}", hint="it holds a token"
        ) from error
