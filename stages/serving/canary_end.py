"""When a canary's engine cannot be had or go on, and its record. Not for: its users (`canary.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from stages.errors import InputMissingError, IntegrityError
from stages.gateway.arms import Arms
from stages.registry.deployments import Deployment
from stages.registry.rebuilt import check_rebuilt
from stages.registry.states import StateError
from stages.registry.store import Store
from stages.serving.supervisor import Say, Supervisor

MISSING_S = 60.0  # files that are away for less come back: a mount, a copy that is made again


class Missing:
    """Since when files of a canary that was opened before are missing, looked at time and again."""

    def __init__(self) -> None:
        self._of, self._since = "", 0.0

    async def is_for_good(self, store: Store, arms: Arms, found: Deployment) -> bool:
        """Whether they have been for MISSING_S, while the live checkpoint's were there at every look.

        A rebuilt copy that is damaged is removed: the next look makes it again.
        """
        now, live = time.monotonic(), arms.live.served.checkpoint.path
        if found.id != self._of or not await asyncio.to_thread(live.is_dir):
            self._of, self._since = found.id, now
        artifact = await asyncio.to_thread(store.resolve, found.checkpoint, found.line)
        await asyncio.to_thread(check_rebuilt, store, artifact)
        return now - self._since >= MISSING_S


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


@contextlib.asynccontextmanager
async def verified(
    store: Store, missing: Missing, arms: Arms, found: Deployment, say: Say
) -> AsyncIterator[None]:
    """A canary that is damaged or gone, or of which no engine can be verified, is rolled back: nobody has it.

    Not one whose files are away for a moment, or together with the live checkpoint's: that is a disk.
    """
    try:
        yield
    except (IntegrityError, InputMissingError) as error:
        if isinstance(error, InputMissingError) and not await missing.is_for_good(store, arms, found):
            raise
        say(f"canary {found.id} is rolled back: {error.message}")
        await record_end(store, found.id, f"its engine: {error.message}")
        raise


async def record_end(store: Store, deployment: str, reason: str) -> None:
    """The roll-back of a canary that no user has any more."""
    if deployment:
        with contextlib.suppress(StateError):  # no canary yet: the deploy that is trying it says so
            await asyncio.to_thread(store.deployments.end_canary, deployment, reason, by="rtrl serve")
