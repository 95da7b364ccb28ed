"""Engines of populations' lines and of holdbacks, beside the live one, in the gateway's event loop.

The registry is the truth, as for the live checkpoint: a line whose live checkpoint is another one than the
main line's has an engine of its own, with a canary of its own when one is open; what a killed deploy left
half-way is brought to its end. A line that serves what the main line serves needs none. A failure of one of
these engines is said and tried again; its users are answered by the main line meanwhile.
Not for: the main line's own engine and canary (`stages/serve.py`), who goes where (`stages/gateway/arms.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stages.engine.process import EngineProcess
from stages.errors import LockedError, RtrlError, classified
from stages.gateway.arms import Arms
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.served import Checkpoint
from stages.gateway.swapper import Swapper
from stages.population_config import labels_of
from stages.records import LIVE
from stages.registry.store import Store
from stages.serving.announce import Announcer
from stages.serving.canary import ENDING, CanaryEngine, keep_canary
from stages.serving.extra import ExtraEngine
from stages.serving.holdback import HoldbackEngine, on_record
from stages.serving.reconcile import keep_reconciled, live_checkpoint, target_lock
from stages.serving.supervisor import Say, Supervisor
from stages.target.canary import canary_of
from stages.target.completed import complete
from stages.target.switch import end_interrupted
from stages.workspace import Workspace

EVERY_S = 2.0


@dataclass(eq=False)
class LineEngine:
    """A population's line while it has an engine: everything the main line has."""

    engine: ExtraEngine
    arms: Arms
    swapper: Swapper
    canary: CanaryEngine
    holdback: HoldbackEngine
    tasks: list[asyncio.Task[None]]


class Lines:
    """All engines of one `rtrl serve` but the main line's own. Give `keep` a task, call `close` at the end.

    Args:
        arms: of the main line; lines and holdback are entered there.
        last_seq: makes what was answered durable; the spool's last record.
        changed: called with each process started, None once one is gone (to note its pid).
    """

    def __init__(
        self,
        workspace: Workspace,
        store: Store,
        arms: Arms,
        last_seq: Callable[[], int],
        say: Say,
        changed: Callable[[EngineProcess | None], None] = lambda _: None,
    ) -> None:
        self._workspace, self._store, self._arms = workspace, store, arms
        self._last_seq, self._say, self._changed = last_seq, say, changed
        self._hosts: dict[str, LineEngine] = {}
        self._pauses: dict[str, tuple[float, float]] = {}  # until when, and how long that is
        self._busy = asyncio.Lock()
        self._starting: set[asyncio.Timeout] = set()
        self._ends = False
        self.announcer: Announcer | None = None
        settings = workspace.settings
        arms.route = {
            label: name for name, each in settings.populations.items() for label in labels_of(name, each)
        }
        arms.collapse = settings.ab.collapse
        self._main = settings.workspace.line
        self._holdback = self._holdback_of(arms, self._main)

    async def keep(self) -> None:
        """Follow settings and registry until cancelled; failures are said, and tried again."""
        while True:
            holdbacks = {f"{self._main}/holdback": self._holdback}
            holdbacks |= {f"{line}/holdback": host.holdback for line, host in self._hosts.items()}
            await asyncio.gather(
                *(
                    self._try(line, partial(self._follow, line))
                    for line in self._workspace.settings.populations
                ),
                *(self._try(what, partial(each.follow, self._drain_s)) for what, each in holdbacks.items()),
            )
            await asyncio.sleep(EVERY_S)

    async def _try(self, what: str, follow: Callable[[], Awaitable[None]]) -> None:
        """Unless it failed a moment ago: an engine that does not start is not started over and over."""
        now, (until, pause) = time.monotonic(), self._pauses.get(what, (0.0, 0.0))
        if now < until:
            return
        try:
            with classified():
                await follow()
            self._pauses.pop(what, None)
        except (RtrlError, ApiError, SwapError) as error:
            engine = self._workspace.settings.engine
            pause = min(max(2 * pause, engine.restart_backoff_s), engine.restart_backoff_max_s)
            self._pauses[what] = (time.monotonic() + pause, pause)
            self._say(f"{what}: {error.message}; tried again in {pause:.0f} s")

    async def require(self, line: str) -> LineEngine:
        """The line's engine, started on its live checkpoint when there is none (for its first canary).

        Raises RtrlError when it does not start.
        """
        async with self._busy:
            if line not in self._hosts:
                live = await asyncio.to_thread(live_checkpoint, self._store, line)
                await self._open(line, live or self._arms.live.served.checkpoint)
            return self._hosts[line]

    async def serve(self, line: str, checkpoint: Checkpoint) -> Any | None:
        """Start the line's engine on `checkpoint`; its verification. None when it has one: swap it then."""
        async with self._busy:
            if line in self._hosts:
                return None
            await self._open(line, checkpoint)
            return self._hosts[line].engine.supervisor.verification

    async def leave(self, line: str) -> None:
        """End the line's engine: the main line answers its users."""
        async with self._busy:
            if line in self._hosts:
                await self._close(line, self._drain_s)

    def of(self, line: str) -> LineEngine | None:
        """The line's engine now."""
        return self._hosts.get(line)

    def knows(self, line: str) -> bool:
        """Whether `line` is a population's."""
        return line in self._workspace.settings.populations

    def supervisors(self) -> dict[str, Supervisor]:
        """All that run, by line and arm: `auto/holdback`, `acme`, `acme/canary`. A line has no slash."""
        held = self._holdback.engine
        found = {f"{self._main}/holdback": held.supervisor} if held else {}
        for line, host in self._hosts.items():
            found[line] = host.engine.supervisor
            if host.canary.supervisor is not None:
                found[f"{line}/canary"] = host.canary.supervisor
            if host.holdback.engine is not None:
                found[f"{line}/holdback"] = host.holdback.engine.supervisor
        return found

    def end(self) -> None:
        """No engine is started any more, nor waited for."""
        self._ends = True
        for starting in self._starting:
            starting.reschedule(asyncio.get_running_loop().time())
        for host in self._hosts.values():
            host.canary.end()

    async def close(self) -> None:
        """Stop them all; nobody is answered by them any more."""
        await self._holdback.end(0.1)
        for line in list(self._hosts):
            await self._close(line, 0.1)

    @property
    def _drain_s(self) -> float:
        return self._workspace.settings.gateway.drain_timeout_s

    async def _follow(self, line: str) -> None:
        """An engine where the line serves something of its own, or has a canary; else none."""
        wanted, canary = await asyncio.to_thread(self._registered, line)
        if (line in self._hosts) == (self._is_apart(wanted) or canary):
            return
        async with self._busy:
            try:
                lock = await target_lock(self._store, line)
            except LockedError:
                return  # somebody deploys it
            try:
                await asyncio.to_thread(complete, self._store, self._workspace.run_dir, line)
                await asyncio.to_thread(end_interrupted, self._store, line)
                wanted, canary = await asyncio.to_thread(self._registered, line)
            finally:
                lock.release()  # an engine takes long to start or end, and a rollback must not wait for that
            if (line in self._hosts) == (self._is_apart(wanted) or canary):
                return  # so it is since the rollback is on record
            if line in self._hosts:
                self._say(f"line {line} serves what the main line serves: its engine ends")
                await self._close(line, self._drain_s)
            elif wanted is not None:
                self._say(f"line {line} has an engine of its own from now on")
                await self._open(line, wanted)

    def _is_apart(self, wanted: Checkpoint | None) -> bool:
        return wanted is not None and wanted.digest != self._arms.live.served.checkpoint.digest

    def _registered(self, line: str) -> tuple[Checkpoint | None, bool]:
        return live_checkpoint(self._store, line), canary_of(self._store, line) is not None

    async def _open(self, line: str, checkpoint: Checkpoint) -> None:
        ab, gateway = self._workspace.on_line(line).settings.ab, self._workspace.settings.gateway
        holds = await asyncio.to_thread(on_record, self._store, line, ab.holdback)
        engine = await self._start(checkpoint, line=line, arm=LIVE)
        arms = Arms(engine.arm)
        arms.collapse, arms.holdback = ab.collapse, holds  # its engine may come long after a canary's
        keeper = engine.supervisor if gateway.in_flight == "continue" else None
        beside = engine.supervisor if self._workspace.settings.engine.lora_rank else None
        swapper = Swapper(
            engine.arm.served,
            engine.supervisor.update,
            gateway.drain_timeout_s,
            prepare=engine.supervisor.prepare,
            keeper=keeper,
            beside=beside,
            release=engine.supervisor.release,
        )
        log = self._store.dir / "logs" / f"canary-{line}.log"
        canary = CanaryEngine(self._workspace.settings.engine, gateway, arms, log, self._say, self._changed)
        store, say, run_dir = self._store, self._say, self._workspace.run_dir
        tasks = [
            asyncio.create_task(keep_reconciled(store, engine.arm.served, swapper, say, run_dir)),
            asyncio.create_task(keep_canary(store, canary, arms, self._drain_s, say, run_dir)),
        ]
        if self.announcer is not None:
            swapper.told, canary.told = self.announcer.swapped, self.announcer.canary
        host = LineEngine(engine, arms, swapper, canary, self._holdback_of(arms, line), tasks)
        self._hosts[line] = host
        self._arms.lines[line] = arms
        self._changed(engine.supervisor.process)

    async def _close(self, line: str, drain_s: float) -> None:
        """Users first, then the engines."""
        self._arms.lines.pop(line, None)
        host = self._hosts.pop(line)
        for task in host.tasks:
            task.cancel()
        await asyncio.gather(*host.tasks, return_exceptions=True)
        await host.canary.close(drain_s)
        await host.holdback.end(drain_s)
        await host.engine.stop(drain_s)
        self._changed(None)

    async def _start(self, checkpoint: Checkpoint, *, line: str, arm: str) -> ExtraEngine:
        settings = self._workspace.settings
        name = line if arm == LIVE else f"{line}+{arm}"
        if self._ends:
            raise ENDING()
        limit = asyncio.timeout(None)
        self._starting.add(limit)
        try:
            async with limit:
                return await ExtraEngine.start(
                    checkpoint,
                    line=line,
                    arm=arm,
                    engine=settings.engine,
                    gateway=settings.gateway,
                    log=self._store.dir / "logs" / f"engine-{name}.log",
                    say=self._say,
                    changed=self._changed,
                )
        except TimeoutError:
            if limit.expired():
                raise ENDING() from None
            raise
        finally:
            self._starting.discard(limit)

    def _holdback_of(self, arms: Arms, line: str) -> HoldbackEngine:
        share = self._workspace.on_line(line).settings.ab.holdback
        return HoldbackEngine(
            self._store, arms, share, self._start, self._last_seq, lambda: self._changed(None)
        )
