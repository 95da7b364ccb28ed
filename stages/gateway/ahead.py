"""Weights that an engine makes ready before anybody asks a swap for them.

Not here: when there is time for it (`swapper.py`), and how an engine does it (`stages/engine/update.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stages.errors import RtrlError

UNWANTED_S = 60.0  # they wait so long for the swap


class Stager(Protocol):
    """An engine that can make weights ready while it serves others."""

    async def stage(self, checkpoint_dir: Path) -> None:
        """Begin, or go on where it was stopped; to be cancelled at any time. Raises RtrlError."""

    async def unstage(self) -> None:
        """Their memory is free again. Raises RtrlError."""


class Ahead:
    """One set of weights at a time.

    Args:
        stager: gives the engine as it is now; None where it cannot.
    """

    def __init__(self, stager: Callable[[], Stager] | None) -> None:
        self._stager = stager
        self._task: asyncio.Task[None] | None = None

    def begin(self, path: Path) -> bool:
        """Have the weights in a folder made ready; whether it is begun. Forgotten after UNWANTED_S."""
        if self._stager is None or (self._task is not None and not self._task.done()):
            return False
        self._task = asyncio.create_task(self._staged(self._stager(), path))
        return True

    async def end(self) -> None:
        """The engine does nothing else from now on; what it had begun it still has."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _staged(self, stager: Stager, path: Path) -> None:
        with contextlib.suppress(RtrlError):  # a swap that wants them says what is wrong
            await stager.stage(path)
            await asyncio.sleep(UNWANTED_S)
            await stager.unstage()
