"""One more engine behind the gateway, beside that of the live checkpoint: an arm for some of the users.

Started and verified as the live one is, on a port and with a key of its own; started again when it dies.
While it does not serve, its users are answered by the live one (`stages/gateway/arms.py`).
Not for: a canary, which is taken away when its engine fails (`canary.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.gateway.arms import Arm
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.gate import DrainTimeoutError
from stages.gateway.health import Health
from stages.gateway.served import Checkpoint, ServedState
from stages.serving.supervisor import Say, Supervisor


class ExtraEngine:
    """An engine with its arm, running. Made by `start`."""

    def __init__(self, supervisor: Supervisor, arm: Arm) -> None:
        self.supervisor = supervisor
        self.arm = arm
        self._watching = asyncio.create_task(supervisor.watch())

    @classmethod
    async def start(
        cls,
        checkpoint: Checkpoint,
        *,
        line: str,
        arm: str,
        engine: EngineConfig,
        gateway: GatewayConfig,
        log: Path,
        say: Say,
        changed: Callable[[EngineProcess | None], None],
    ) -> ExtraEngine:
        """Start it on `checkpoint`, verified. Raises RtrlError; nothing is left of it then."""
        health = Health.of(gateway.breaker, arm)
        served = ServedState(line, engine.served_name, checkpoint, arm=arm, health=health)
        supervisor = Supervisor(engine.model_copy(update={"port": 0}), served, log, say, changed)
        try:
            await supervisor.start()
        except BaseException:
            await supervisor.stop(patient=False)
            raise
        address = supervisor.base_url, supervisor.key
        client = EngineClient(*address, engine.served_name, gateway, health.breaker)
        supervisor.moved = client.move
        return cls(supervisor, Arm(served, client))

    async def stop(self, drain_s: float) -> None:
        """End it; its users were taken away before. Requests not done after `drain_s` are cut short."""
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        with contextlib.suppress(DrainTimeoutError):
            async with self.arm.served.gate.exclusive(drain_s, cut=True):
                self.arm.served.engine = "down"
        await self.arm.engine.close()
        await self.supervisor.stop()
