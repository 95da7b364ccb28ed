"""Keeps one engine running behind the gateway: starts it, watches it, starts it again when it dies.

Sets `ServedState.engine`, which is how the gateway knows whether to answer 503; never decides *what* to
serve: a new engine always starts on `ServedState.checkpoint`. Lives in the gateway's event loop, whose
thread must be the process's main thread (the engine dies with the thread that started it).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.engine.config import EngineConfig
from stages.engine.diagnose import explained
from stages.engine.free_port import free_port
from stages.engine.process import EngineProcess
from stages.engine.update import EngineControl, GoesOn
from stages.engine.verification import Verification
from stages.errors import RtrlError, classified
from stages.gateway import logs
from stages.gateway.rolling import FULL, Way
from stages.gateway.served import ServedState
from stages.serving.adapted import HERE, Adapted
from stages.serving.probes import failing, probe
from stages.serving.second import Ending, in_the_way, start_second, too_small
from stages.serving.warmup import warm_up
from stages.wording import exit_status

POLL_S = 0.2
STEADY_S = 60.0  # an engine that lived this long failed for a new reason: the pauses start afresh
SILENCES = 3  # at least so many health probes in a row are not answered by an engine that hangs

Say = Callable[[str], None]


class Supervisor:
    """The engine of one gateway.

    Args:
        config: the engine's settings.
        served: shared with the gateway; `checkpoint` says what to start on.
        log: the engine's output, appended to over restarts.
        say: one line for people about what happened.
        changed: called with each newly started process (to note its pid).
        moved: (attribute) called with URL and key when another process answers from now on.
        way: (attribute) how it took the last weights.
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
        self._second: EngineProcess | None = None
        self._replacing = False
        self._ending = Ending()
        self.way = Way(FULL, HERE)
        self.moved: Callable[[str, str], None] = lambda _url, _key: None
        self._heard = 0.0  # when a probe was last answered well
        self.control = EngineControl(self.base_url, self._key, config, served.checkpoint.path)
        self._adapted = Adapted(self.control, served, say)

    @property
    def base_url(self) -> str:
        """Where the engine listens; the same over restarts, another after a switch to a second one."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def key(self) -> str:
        """What the engine's port wants as bearer token."""
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
        self.served.health.starts += 1
        self.served.health.probe_failures = 0
        began = time.monotonic()
        try:
            with classified(), explained(lambda: self.process):  # a full disk, a store that is away: no bug
                weights = (await self._adapted.plan(checkpoint.path)).weights
                self._begin(weights)
                if not await asyncio.to_thread(self.process.wait_healthy, self._say, lambda: self._stopping):
                    return
                found = await self.control.verify(weights)
                self.verification = await self._adapted.settled(checkpoint.path, weights, found)
                warm_up_s = await self._warm_up(checkpoint.path, self.config.warmup_requests)
        except RtrlError as error:
            self.served.engine = "down"
            self._log("down", logging.ERROR, reason=error.kind)
            if self._process is not None:
                await asyncio.to_thread(self._process.kill)
            raise
        # a rollback may have asked for another one meanwhile: `watch` starts it anew on that
        self.served.engine = "ready" if self.served.checkpoint == checkpoint else "unknown"
        self.served.health.breaker.reset()
        seconds = round(time.monotonic() - began, 3)
        self._log(self.served.engine, pid=self.process.pid, seconds=seconds, warm_up_s=round(warm_up_s, 3))

    async def prepare(self, path: Path) -> None:
        """Before requests are held: look at the files; where it cannot take them, start a second engine.

        Raises RtrlError when that does not start; the running one is as it was.
        """
        self.release()
        weights = (await self._adapted.plan(path)).weights
        why = await asyncio.to_thread(in_the_way, self.control.started_with, weights)
        if not why:
            await self.control.prepare(weights)
            return
        await self._ending.over()  # or their memory is none that is free
        if not too_small(self.process.pid):
            self._second = await start_second(weights, self.config, self.log, self._say)

    def can_keep(self, path: Path) -> bool:
        """Whether answers can go on under these weights: it takes them in place, has no adapters that they
        may be written with, and tells of its answers."""
        if self.config.lora_rank or not self.control.tells:
            return False
        return not in_the_way(self.control.started_with, path)

    async def takes(self, path: Path) -> bool:
        """Whether only its adapters have to change for this checkpoint: `attach` then."""
        return await self._adapted.takes(path)

    async def attach(self, path: Path) -> tuple[Verification, str]:
        """Be ready for a checkpoint, verified, while what is served goes on; the engine's name for it."""
        self.verification, route = await self._adapted.attach(path)
        self.way = self._adapted.way(self.verification)
        await self._warm_up(path, self.config.warmup_update_requests, route)
        return self.verification, route

    def sampled(self, generation: str) -> int | None:
        """See `EngineControl.sampled`."""
        return self.control.sampled(generation)

    async def update(self, path: Path, *, keep: GoesOn | None = None) -> Verification:
        """Serve other weights, verified. For the gateway's swap, which holds requests; `keep` as in
        `EngineControl.update`."""
        weights = (await self._adapted.plan(path)).weights
        why, way = in_the_way(self.control.started_with, weights), None
        if not why:
            found = await self.control.update(weights, keep=keep)
        elif self._second is not None and self._second.checkpoint_dir == weights:
            way = Way("second engine and traffic switch", why)
            found = await self._switch(self._second)
        else:
            small = too_small(self.process.pid) or "there was no time for a second one"
            way = Way("restart", f"{why}; no second engine: {small}")
            found = await self._start_anew(weights)
        self.verification = await self._adapted.settled(path, weights, found)
        self.way = way or self._adapted.way(self.verification)
        await self._warm_up(path, self.config.warmup_update_requests)
        return self.verification

    async def _switch(self, second: EngineProcess) -> Verification:
        """Traffic to the second engine; the first one ends afterwards."""
        first, self._second = self.process, None
        await self.control.close()
        self._process, self._port, self._key = second, second.port, second.key
        self.control = EngineControl(self.base_url, self._key, self.config, second.checkpoint_dir)
        self._adapted.fresh(self.control)
        self.moved(self.base_url, self._key)
        self._changed(second)
        self._ending.add(first)
        return await self.control.verify(second.checkpoint_dir)

    async def _start_anew(self, path: Path) -> Verification:
        self._replacing = True
        try:
            await asyncio.to_thread(self.process.kill)
            await self.control.close()
            self._begin(path)
            await asyncio.to_thread(self.process.wait_healthy, self._say, lambda: self._stopping)
            return await self.control.verify(path)
        finally:
            self._replacing = False

    def _begin(self, weights: Path) -> None:
        """Start a process on these weights; it holds nothing else yet."""
        self._process = EngineProcess.start(weights, self.config, self.log, port=self._port, key=self._key)
        self.control.start_with(weights)
        self._adapted.fresh(self.control)
        self._changed(self._process)

    def release(self) -> None:
        """Nobody comes for the second engine that `prepare` started: it ends."""
        if self._second is not None:
            self._ending.add(self._second)
            self._second = None

    async def _warm_up(self, path: Path, requests: int, route: str = "") -> float:
        name = route or self.served.route or self.config.served_name
        return await warm_up(self.base_url, self._key, self.config, path, requests, name)

    def _log(self, state: str, level: int = logging.INFO, **fields: Any) -> None:
        logs.event("engine", level, arm=self.served.arm, state=state, **fields)

    async def watch(self) -> None:
        """Until cancelled: notice that the engine died, hangs or holds unknown weights, and replace it."""
        pause = self.config.restart_backoff_s
        while True:
            begun = time.monotonic()
            reason = await self.trouble()
            if time.monotonic() - begun > STEADY_S:
                pause = self.config.restart_backoff_s
            self.served.engine = "down"
            self._log("down", logging.ERROR, reason=reason)
            self._say(f"engine: {reason}; starting it again in {pause:.0f} s (log: {self.log})")
            if self._process is not None:  # giving its memory back may take seconds; others answer meanwhile
                await asyncio.to_thread(self._process.kill)
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
        self._heard = time.monotonic()
        next_probe = self._heard + self.config.health_every_s
        while True:
            if self._replacing:
                await asyncio.sleep(POLL_S)
                continue
            if self._process is None:
                return "it could not be started"
            if (status := self._process.exit_status()) is not None:
                return f"it ended with status {exit_status(status)}"
            if self.served.engine == "unknown" and not self.served.gate.closed:
                return "its weights could not be verified"
            if time.monotonic() >= next_probe:
                if reason := await self._probe():
                    return reason
                next_probe = time.monotonic() + self.config.health_every_s
            if reason := failing(self.served.health, self.served.arm, self.config.failing_restart_s):
                return reason
            await asyncio.sleep(POLL_S)

    async def _probe(self) -> str:
        """Ask for the engine's health. Why it cannot go on, "" when it can."""
        answer = await probe(self.control, self.served.health, self.config.health_failures)
        if answer == "sick":
            return "its core died"
        now = time.monotonic()
        if answer == "ok":
            self._heard = now
        elif self.served.health.probe_failures >= SILENCES and now - self._heard >= self.config.silence_s:
            return f"it has not answered for {now - self._heard:.0f} s"
        return ""

    def kill(self) -> None:
        """End the engine at once, from wherever it stands."""
        if self._process is not None:
            self._process.kill()

    async def stop(self, *, patient: bool = True) -> None:
        """Stop the engine, nothing left behind; impatiently at once: one that starts may not heed SIGTERM."""
        self._stopping = True
        self.served.engine = "down"
        self.release()
        await self._ending.over()
        await self.control.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop if patient else self._process.kill)
