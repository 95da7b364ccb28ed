"""When a canary's engine cannot go on, and the record of the roll-back. Not for: its users (`canary.py`)."""

from __future__ import annotations

import asyncio
import contextlib

from stages.gateway.arms import Arms
from stages.registry.states import StateError
from stages.registry.store import Store
from stages.serving.supervisor import Supervisor


async def trouble_of(supervisor: Supervisor, arms: Arms) -> str:
    """Return when the engine cannot go on, or is too slow beside the live one, with the reason."""
    dying = asyncio.create_task(supervisor.trouble())
    try:
        while not (await asyncio.wait({dying}, timeout=1.0))[0]:
            if reason := arms.collapsed():
                return reason
        return dying.result()
    finally:
        dying.cancel()


async def record_end(store: Store, deployment: str, reason: str) -> None:
    """The roll-back of a canary that no user has any more."""
    if deployment:
        with contextlib.suppress(StateError):  # no canary yet: the deploy that is trying it says so
            await asyncio.to_thread(store.deployments.end_canary, deployment, reason, by="rtrl serve")
