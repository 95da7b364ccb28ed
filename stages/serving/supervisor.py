"""Keeps one engine running behind the gateway: starts it, watches it, starts it again when it dies.

Sets `ServedState.engine`, which is how the gateway knows whether to answer 503; never decides *what* to
serve: a new engine always starts on `ServedState.checkpoint`. Lives in the gateway's event loop, whose
thread must be the process's main thread (the engine dies with the thread that started it).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess, free_port
from stages.engine.update import EngineControl
from stages.engine.verification import Verification
from stages.errors import RtrlError, classified
from stages.gateway.rolling import Way
from stages.gateway.served import ServedState

POLL_S = 0.2
HEALTH_EVERY_S = 2.0
SILENCES = 3  # at least so many health checks in a row are not answered by an engine that hangs
STEADY_S = 60.0  # an engine that lived this long failed for a new reason: the pauses start afresh

Say = Callable[[str], None]


class Supervisor:
    """The engine of one gateway.

    Args:
        config: the engine's settings.
        served: shared with the gateway; `checkpoint` says what to start on.
        log: the engine's output, appended to over restarts.
        say: one line for people about what happened.
        changed: called with each newly started process (to note its pid).
    """

    def __init__(
        self,
        config: EngineConfig,
        served: ServedState,
        log: Path,
        say: Say,
        changed: Callable[[EngineProcess], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.served = served
        self.log = log
        self.verification: Verification | None = None
        self._say = say
        self._changed = changed
        self._port = config.port or free_port()
        self._key = secrets.token_urlsafe(24)
        self._stopping = False
        self._process: EngineProcess | None = None
        self.control = EngineControl(self.base_url, self._key, config, served.checkpoint.path)

    @property
    def base_url(self) -> str:
        """Where the engine listens; the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def key(self) -> str:
        """What the engine's port wants as bearer token; the same over restarts."""
        return self._key

    @property
    def pid(self) -> int | None:
        """Of the process started last; None before the first."""
        return self._process.pid if self._process is not None else None

    @property
    def process(self) -> EngineProcess:
        """The process started last."""
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Start on the served checkpoint, wait for health, verify. Raises RtrlError with a diagnosis."""
        checkpoint = self.served.checkpoint
        self.served.engine = "starting"
        try:
            with classified():  # a full disk, a store that is away: to be tried again, no bug
                self._process = EngineProcess.start(
                    checkpoint.path, self.config, self.log, port=self._port, key=self._key
                )
                self.control.started_with = checkpoint.path
                self._changed(self._process)
                if not await asyncio.to_thread(self.process.wait_healthy, self._say, lambda: self._stopping):
                    return
                self.verification = await self.control.verify(checkpoint.path)
        except RtrlError:
            self.served.engine = "down"
            if self._process is not None:
                self._process.kill()
            raise
        # a rollback may have asked for another one meanwhile: `watch` starts it anew on that
        self.served.engine = "ready" if self.served.checkpoint == checkpoint else "unknown"

    @property
    def way(self) -> Way:
        """How it gets other weights."""
        return Way("in place, full weights", "it runs here and reads the store's folder")

    async def update(self, path: Path) -> Verification:
        """New weights into the running engine, verified. For the gateway's swap, which holds requests."""
        self.verification = await self.control.update(path)
        return self.verification

    async def watch(self) -> None:
        """Until cancelled: notice that the engine died, hangs or holds unknown weights, and replace it."""
        pause = self.config.restart_backoff_s
        while True:
            begun = time.monotonic()
            reason = await self.trouble()
            if time.monotonic() - begun > STEADY_S:
                pause = self.config.restart_backoff_s
            self.served.engine = "down"
            self._say(f"engine: {reason}; starting it again in {pause:.0f} s (log: {self.log})")
            if self._process is not None:
                self._process.kill()
            await self.control.close()
            await asyncio.sleep(pause)
            pause = min(pause * 2, self.config.restart_backoff_max_s)
            try:
                await self.start()
            except RtrlError as error:
                self._say(f"engine: {error.message}; {error.hint}")
            else:
                self._say("engine: ready again")

    async def trouble(self) -> str:
        """Return when the engine cannot go on, with the reason."""
        silences, heard = 0, time.monotonic()
        next_health = heard + HEALTH_EVERY_S
        while True:
            if self._process is None:
                return "it could not be started"
            status = self._process.exit_status()
            if status is not None:
                return f"it ended with status {status}"
            if self.served.engine == "unknown" and not self.served.gate.closed:
                return "its weights could not be verified"
            if time.monotonic() >= next_health:
                health = await self.control.health()
                if health == "sick":
                    return "its core died"
                now = time.monotonic()
                silences, heard = (silences + 1, heard) if health == "silent" else (0, now)
                if silences >= SILENCES and now - heard >= self.config.silence_s:
                    return f"it has not answered for {now - heard:.0f} s"
                next_health = now + HEALTH_EVERY_S
            await asyncio.sleep(POLL_S)

    async def stop(self, *, patient: bool = True) -> None:
        """Stop the engine and leave nothing behind; without patience at once (one that starts may be deaf to
        SIGTERM for long, and nobody waits for its answers)."""
        self._stopping = True
        self.served.engine = "down"
        await self.control.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop if patient else self._process.kill)
