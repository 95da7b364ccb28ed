"""The second engine of a canary: started, verified, given its users, and taken away from them first.

The registry says whether there is a canary, and this follows it, as `reconcile.py` does for the live
checkpoint: a deploy or rollback that was killed in between is brought to its end by the running
gateway. A canary whose engine dies, hangs or cannot be verified is rolled back without statistics.

Not here: who is in it (`stages/gateway/arms.py`), what it is worth (`stages/ab/`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.engine.verification import Verification
from stages.errors import (
    DependencyDownError,
    LockedError,
    RtrlError,
    classified,
)
from stages.gateway.arms import Arm, Arms, Canary
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.gate import DrainTimeoutError
from stages.gateway.health import Health
from stages.gateway.served import Checkpoint, ServedState
from stages.records import CANARY
from stages.registry.deployments import Deployment
from stages.registry.store import Store
from stages.serving.canary_end import Missing, record_end, trouble_of, verified
from stages.serving.reconcile import EVERY_S, target_lock
from stages.serving.supervisor import Say, Supervisor
from stages.target.canary import canary_of
from stages.target.completed import complete
from stages.target.switch import end_interrupted

NOBODY = "no user has seen the candidate; deploy it again if it is still wanted"
OVERTAKEN = partial(LockedError, "a rollback came before", hint=NOBODY)
ENDING = partial(DependencyDownError, "`rtrl serve` is ending", hint="deploy again once it serves")
SILENCE_S = 30.0  # at most: the users of a canary's engine that hangs have the live one to go to


class CanaryEngine:
    """The engine behind the second arm of one gateway, while there is one.

    Args:
        config: the live engine's settings; the port is another one.
        log: the engine's output.
        changed: called with the process started, None once it is gone (to note its pid).
    """

    def __init__(
        self,
        config: EngineConfig,
        gateway: GatewayConfig,
        arms: Arms,
        log: Path,
        say: Say,
        changed: Callable[[EngineProcess | None], None] = lambda _: None,
    ) -> None:
        self._config = config.model_copy(update={"port": 0, "silence_s": min(config.silence_s, SILENCE_S)})
        self._gateway = gateway
        self._arms = arms
        self._log = log
        self._say = say
        self._changed = changed
        self._busy = asyncio.Lock()
        self._starting: asyncio.Timeout | None = None
        self._given_up: Callable[[], RtrlError] = OVERTAKEN
        self._ending: asyncio.Task[str] | None = None
        self._pause = self._until = 0.0
        self.missing = Missing()
        self.supervisor: Supervisor | None = None
        self.told: Callable[[str, Checkpoint], None] = lambda _outcome, _checkpoint: None
        self.opened = asyncio.Event()

    async def open(self, checkpoint: Checkpoint, *, salt: str, share: float) -> Verification:
        """Start an engine on `checkpoint`, verify it, and give it its users.

        Raises:
            LockedError (11): there is a canary, or a rollback came before. DependencyDownError (13): `end`.
            RtrlError: it does not start, or does not serve the checkpoint; nothing is left of it.
        """
        if self._given_up is ENDING:
            raise ENDING()
        if self._busy.locked() or self.supervisor is not None:
            raise LockedError("a canary is open", hint="promote it or `rtrl rollback` it first")
        async with self._busy:
            live = self._arms.live.served
            health = Health.of(self._gateway.breaker, CANARY)
            served = ServedState(live.line, live.model, checkpoint, arm=CANARY, health=health)
            self.supervisor = Supervisor(self._config, served, self._log, self._say, self._changed)
            self._arms.opening = checkpoint.deployment if share else ""
            self._starting = starting = asyncio.timeout(None)
            try:
                async with starting:
                    await self.supervisor.start()
            except BaseException as error:
                self._starting = None  # it has ended, by itself or not: there is nothing to give up
                self.told("failed", checkpoint)
                await self._stop(patient=False)
                if starting.expired() and isinstance(error, TimeoutError):
                    raise self._given_up() from None
                raise
            finally:
                self._arms.opening, self._starting = "", None
            address = self.supervisor.base_url, self.supervisor.key
            client = EngineClient(*address, live.model, self._gateway, health.breaker)
            self._arms.open(Canary(Arm(served, client), checkpoint.deployment, salt, share))
            self.told("opened", checkpoint)
            self.opened.set()
            assert self.supervisor.verification is not None
            return self.supervisor.verification

    @property
    def rests(self) -> bool:
        """Whether one that did not start is left alone for now."""
        return time.monotonic() < self._until

    async def open_again(self, checkpoint: Checkpoint, *, salt: str, share: float) -> None:
        """`open` for users who had it before; after a failure it `rests`, longer from time to time. One that
        is ended meanwhile is no failure."""
        try:
            await self.open(checkpoint, salt=salt, share=share)
        except LockedError:
            return
        except RtrlError:
            if self._given_up is ENDING:
                return
            self._pause = max(2 * self._pause, self._config.restart_backoff_s)
            self._pause = min(self._pause, self._config.restart_backoff_max_s)
            self._until = time.monotonic() + self._pause
            raise
        self._pause = 0.0

    def hurry(self) -> None:
        """A rollback wants the line: a candidate that has no users yet is given up."""
        self._give_up()
        tried = self._arms.canary
        if tried is not None and tried.share == 0 and self._arms.overtaken != tried.deployment:
            self._arms.overtaken = tried.deployment
            self._ending = asyncio.create_task(self.close(0.1, patient=False))

    def end(self) -> None:
        """The gateway ends: one that starts is given up, and none is opened any more."""
        self._given_up = ENDING
        self._give_up()

    async def close(self, drain_s: float, *, patient: bool = True) -> str:
        """Everybody to the live arm at once; then let its requests end, and stop it.

        Those that are not done after `drain_s` are cut short. Without patience the engine is not asked to
        end: one that hangs would not. One that starts is not waited for. The deployment's id, "" without a
        canary.
        """
        self._give_up()
        async with self._busy:
            self.opened.clear()
            ended = self._arms.close()
            if ended is not None:
                self.told("closed", ended.arm.served.checkpoint)
                with contextlib.suppress(DrainTimeoutError):
                    async with ended.arm.served.gate.exclusive(drain_s, cut=True):
                        ended.arm.served.engine = "down"
                await ended.arm.engine.close()
            await self._stop(patient=patient and ended is not None)
        return ended.deployment if ended is not None else ""

    def _give_up(self) -> None:
        """An engine that starts ends; nobody is answered by it yet."""
        if self._starting is not None and self._starting.when() is None:
            self._starting.reschedule(asyncio.get_running_loop().time())

    async def _stop(self, *, patient: bool) -> None:
        supervisor, self.supervisor = self.supervisor, None
        if supervisor is not None:
            await supervisor.stop(patient=patient)
            self._changed(None)


async def reconcile_canary(
    store: Store, engine: CanaryEngine, arms: Arms, drain_s: float, say: Say, run_dir: Path
) -> bool:
    """Open or close the canary as the registry says, unless somebody is deploying. Whether it did.

    One that a rollback took its users from while the store was away is put on record, and not opened again.
    """
    line = arms.live.served.line
    found = await asyncio.to_thread(canary_of, store, line)
    if found is None or found.id != arms.ended:
        arms.ended = ""
    if _serves(arms, found) or (arms.canary is None and engine.rests):
        return False
    try:
        lock = await target_lock(store, line)
    except LockedError:
        return False
    following: asyncio.Task[Any] | None = None
    try:
        await asyncio.to_thread(complete, store, run_dir, line)
        await asyncio.to_thread(end_interrupted, store, line)
        found = await asyncio.to_thread(canary_of, store, line)
        if _serves(arms, found):  # whoever held the lock has put it on record meanwhile
            return False
        if arms.canary is not None:
            say(f"canary {arms.canary.deployment} ends: the registry says so")
            following = asyncio.create_task(engine.close(drain_s))
            await asyncio.sleep(0)  # its users have left it
        if found is not None:
            if following is not None:
                await following
            async with verified(store, engine.missing, arms, found, say):
                artifact = await asyncio.to_thread(store.resolve, found.checkpoint, line)
                folder = await asyncio.to_thread(store.checkpoint_folder, artifact)
            say(f"canary {found.id} again: the registry says so")
            following = asyncio.create_task(_again(store, engine, arms, found, folder, say))
            await asyncio.sleep(0)  # it has begun: whoever closes it waits for it
    finally:
        lock.release()  # an engine takes long to start or end, and a rollback must not wait for that
    if following is not None:
        await following
    return True


async def _again(
    store: Store, engine: CanaryEngine, arms: Arms, found: Deployment, folder: Path, say: Say
) -> None:
    """The registry's canary for its users."""
    checkpoint = Checkpoint(found.checkpoint, folder, found.id)
    async with verified(store, engine.missing, arms, found, say):
        await engine.open_again(checkpoint, salt=found.salt, share=float(found.data["canary"]["share"]))
    engine.missing = Missing()


def _serves(arms: Arms, found: Deployment | None) -> bool:
    """Whether the canary that is served is the registry's."""
    return (arms.canary.deployment if arms.canary else "") == (found.id if found else "")


async def keep_canary(
    store: Store, engine: CanaryEngine, arms: Arms, drain_s: float, say: Say, run_dir: Path
) -> None:
    """Follow the registry, and roll back a canary whose engine fails, until cancelled."""
    trouble: asyncio.Task[str] | None = None
    failed: tuple[str, str] | None = None  # deployment and reason of a roll-back not on record yet
    try:
        while True:
            try:
                with classified():
                    if failed is not None:
                        await record_end(store, *failed)
                        failed = None
                    await reconcile_canary(store, engine, arms, drain_s, say, run_dir)
            except RtrlError as error:
                say(f"canary: {error.message}; {error.hint}")
            if trouble is None and arms.canary is not None and engine.supervisor is not None:
                trouble = asyncio.create_task(trouble_of(engine.supervisor, arms))
            opened = asyncio.create_task(engine.opened.wait())
            await asyncio.wait({trouble or opened}, timeout=EVERY_S)
            opened.cancel()
            if trouble is not None and (trouble.done() or arms.canary is None):
                trouble.cancel()
                if trouble.done() and arms.canary is not None:
                    failed = (arms.canary.deployment, f"its engine: {trouble.result()}")
                    say(f"canary {failed[0]} is rolled back: {failed[1]}")
                    # users first, then the record; what is only slow may finish its answers
                    slow = bool(arms.collapsed())  # not dead: it may finish what it has begun
                    await engine.close(drain_s if slow else 0.1, patient=slow)
                trouble = None
    finally:
        if trouble is not None:
            trouble.cancel()
