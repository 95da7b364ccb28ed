"""The second engine of a canary: started, verified, given its users, and taken away from them first.

The registry says whether there is a canary, and this follows it, as `reconcile.py` does for the live
checkpoint: a deploy or rollback that was killed in between is brought to its end by the running
gateway. A canary whose engine dies, hangs or cannot be verified is rolled back without statistics.

Not here: who is in it (`stages/gateway/arms.py`), what it is worth (`stages/ab/`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.engine.verification import Verification
from stages.errors import LockedError, RtrlError
from stages.gateway.arms import Arm, Arms, Canary
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.gate import DrainTimeoutError
from stages.gateway.health import Health
from stages.gateway.served import Checkpoint, ServedState
from stages.records import CANARY
from stages.registry.states import StateError
from stages.registry.store import Store
from stages.serving.reconcile import EVERY_S, target_lock
from stages.serving.supervisor import Say, Supervisor
from stages.target.canary import canary_of
from stages.target.switch import end_interrupted


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
        self._config = config.model_copy(update={"port": 0})
        self._gateway = gateway
        self._arms = arms
        self._log = log
        self._say = say
        self._changed = changed
        self._busy = asyncio.Lock()
        self.supervisor: Supervisor | None = None

    async def open(self, checkpoint: Checkpoint, *, salt: str, share: float) -> Verification:
        """Start an engine on `checkpoint`, verify it, and give it its users.

        Raises:
            LockedError (11): there is a canary.
            RtrlError: it does not start, or does not serve the checkpoint; nothing is left of it.
        """
        if self._busy.locked() or self.supervisor is not None:
            raise LockedError("a canary is open", hint="promote it or `rtrl rollback` it first")
        async with self._busy:
            live = self._arms.live.served
            health = Health.of(self._gateway.breaker, CANARY)
            served = ServedState(live.line, live.model, checkpoint, arm=CANARY, health=health)
            self.supervisor = Supervisor(self._config, served, self._log, self._say, self._changed)
            try:
                await self.supervisor.start()
            except BaseException:
                await self._stop(patient=False)
                raise
            address = self.supervisor.base_url, self.supervisor.key
            client = EngineClient(*address, live.model, self._gateway, health.breaker)
            self._arms.open(Canary(Arm(served, client), checkpoint.deployment, salt, share))
            assert self.supervisor.verification is not None
            return self.supervisor.verification

    async def close(self, drain_s: float) -> str:
        """Everybody to the live arm at once; then let its requests end, and stop it.

        Those that are not done after `drain_s` are cut short. The deployment's id, "" without a canary.
        """
        async with self._busy:
            ended = self._arms.close()
            if ended is not None:
                with contextlib.suppress(DrainTimeoutError):
                    async with ended.arm.served.gate.exclusive(drain_s, cut=True):
                        ended.arm.served.engine = "down"
                await ended.arm.engine.close()
            await self._stop(patient=ended is not None)
        return ended.deployment if ended is not None else ""

    async def _stop(self, *, patient: bool) -> None:
        supervisor, self.supervisor = self.supervisor, None
        if supervisor is not None:
            await supervisor.stop(patient=patient)
            self._changed(None)


async def reconcile_canary(store: Store, engine: CanaryEngine, arms: Arms, drain_s: float, say: Say) -> bool:
    """Open or close the canary as the registry says, unless somebody is deploying. Whether it did."""
    line = arms.live.served.line
    serving = arms.canary.deployment if arms.canary else ""
    found = await asyncio.to_thread(canary_of, store, line)
    if (found.id if found else "") == serving:
        return False
    try:
        lock = target_lock(store, line)
    except LockedError:
        return False
    try:
        await asyncio.to_thread(end_interrupted, store, line)
        found = await asyncio.to_thread(canary_of, store, line)
        if serving:
            say(f"canary {serving} ends: the registry says so")
            await engine.close(drain_s)
        if found is not None:
            artifact = store.resolve(found.checkpoint, line)
            folder = await asyncio.to_thread(store.checkpoint_folder, artifact)
            say(f"canary {found.id} again: the registry says so")
            share = float(found.data["canary"]["share"])
            await engine.open(Checkpoint(found.checkpoint, folder, found.id), salt=found.salt, share=share)
    finally:
        lock.release()
    return True


async def keep_canary(store: Store, engine: CanaryEngine, arms: Arms, drain_s: float, say: Say) -> None:
    """Follow the registry, and roll back a canary whose engine fails, until cancelled."""
    trouble: asyncio.Task[str] | None = None
    try:
        while True:
            if trouble is None and arms.canary is not None and engine.supervisor is not None:
                trouble = asyncio.create_task(engine.supervisor.trouble())
            if trouble is None:
                await asyncio.sleep(EVERY_S)
            else:
                await asyncio.wait({trouble}, timeout=EVERY_S)
            if trouble is not None and (trouble.done() or arms.canary is None):
                trouble.cancel()
                if trouble.done() and arms.canary is not None:
                    await _roll_back(store, engine, arms, trouble.result(), say)
                trouble = None
            try:
                await reconcile_canary(store, engine, arms, drain_s, say)
            except RtrlError as error:
                say(f"canary: {error.message}; {error.hint}")
    finally:
        if trouble is not None:
            trouble.cancel()


async def _roll_back(store: Store, engine: CanaryEngine, arms: Arms, reason: str, say: Say) -> None:
    """Without statistics: users first, then the record."""
    deployment = arms.canary.deployment if arms.canary else ""
    say(f"canary {deployment} is rolled back: its engine: {reason}")
    await engine.close(0.1)
    if deployment:
        with contextlib.suppress(StateError):  # no canary yet: the deploy that is trying it says so
            await asyncio.to_thread(
                store.deployments.end_canary, deployment, f"its engine: {reason}", by="rtrl serve"
            )
