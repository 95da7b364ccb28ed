"""One engine's checkpoints that are served as a base and an adapter, where that can be; else merged.

Says what the engine is to hold, and brings the adapter beside it. Not here: processes (`supervisor.py`), how
an adapter is loaded and proven (`stages/engine/adapter_control.py`), requests (`stages/gateway/beside.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stages.engine.adapter_control import Adapters, Plan
from stages.engine.update import EngineControl
from stages.engine.verification import Verification
from stages.errors import IntegrityError
from stages.gateway.rolling import Way, in_place
from stages.gateway.served import ServedState
from stages.registry.neighbour import whole_neighbour

HERE = "it runs here and reads the store's folder"
SWAP = "adapter swap"


class Adapted:
    """Of one engine.

    Attributes:
        control: of the process that runs now.
        why: of what is served: why it is merged weights and not its adapter; "" when that is no question.
    """

    def __init__(self, control: EngineControl, served: ServedState, say: Callable[[str], None]) -> None:
        self.control, self._served, self._say = control, served, say
        self._adapters = Adapters(control, self._base, self._busy)
        self.why = ""

    def fresh(self, control: EngineControl) -> None:
        """Another process runs, which holds no adapter."""
        self.control = control
        self._adapters.fresh(control)

    async def plan(self, path: Path) -> Plan:
        """What the engine is to hold for a checkpoint."""
        return await asyncio.to_thread(self._adapters.plan, path)

    async def takes(self, path: Path) -> bool:
        """Whether only adapters have to change for the checkpoint."""
        return await asyncio.to_thread(self._adapters.holds, await self.plan(path))

    async def attach(self, path: Path) -> tuple[Verification, str]:
        """Ready for the checkpoint, proven, and the engine's name for it. Raises RtrlError."""
        plan = await self.plan(path)
        if not await asyncio.to_thread(self._adapters.holds, plan):
            raise IntegrityError(f"{path} needs other weights than the engine's", hint="see the engine's log")
        return await self._attached(path, plan)

    async def _attached(self, path: Path, plan: Plan) -> tuple[Verification, str]:
        found = await self._adapters.attach(path, plan)
        self.why = plan.why
        return found, plan.adapter.name if plan.adapter else ""

    async def settled(self, path: Path, weights: Path, found: Verification) -> Verification:
        """New weights are held and verified (`found`), and nobody is answered: serve the checkpoint.

        By its adapter, if these are its base and the adapter stands its proof; else by its merged weights.
        Raises RtrlError.
        """
        self._served.route = ""
        await self._adapters.based(weights)
        plan = await self.plan(path)
        self.why = plan.why
        if plan.adapter is not None and plan.weights == weights:
            try:
                attached, self._served.route = await self._attached(path, plan)
                return replace(attached, source=found.source, keeps=found.keeps)
            except IntegrityError as error:
                self._say(f"engine: {error.message}; its merged weights are served")
                self.why = error.message
        if weights != path:
            found = await self.control.update(path)
            await self._adapters.based(path)
        return found

    def way(self, found: Verification) -> Way:
        """How the engine got what it serves."""
        if found.source == "adapter":
            return Way(SWAP, "its base is resident; no request waits, and the adapter before stays loaded")
        if self._served.route:
            return in_place(found, f"{HERE}; its base, and its adapter beside it")
        return in_place(found, f"{HERE}; no adapter swap: {self.why}" if self.why else HERE)

    def _base(self, digest: str) -> Path | None:
        return whole_neighbour(self._served.checkpoint.path, digest)

    def _busy(self, name: str) -> bool:
        return name == self._served.route or self._served.turns.on(name)
