"""A swap that holds nobody: the engine is made ready for a checkpoint while it answers with another.

So with LoRA adapters of one base. Requests under way go on with what they were begun with, new ones are asked
for by another name from one moment on. Not here: the engine's side (`stages/engine/adapter_control.py`),
weights that are replaced (`swapper.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stages.errors import DependencyDownError, RtrlError
from stages.gateway.served import Checkpoint, ServedState


class Beside(Protocol):
    """An engine that can be asked for several checkpoints."""

    async def takes(self, path: Path) -> bool:
        """Whether the checkpoint in this folder needs no other weights than it has."""

    async def attach(self, path: Path) -> tuple[Any, str]:
        """Make it ready and prove it: what was found, and the engine's name for the checkpoint.

        Raises RtrlError: it serves what it served.
        """


class HungError(Exception):
    """The engine did not answer in time."""


class DamagedError(Exception):
    """It did not work, and what is served is not proven any more. `cause` is what did not work."""

    def __init__(self, cause: RtrlError) -> None:
        super().__init__(cause.message)
        self.cause = cause


async def turn(
    beside: Beside,
    served: ServedState,
    target: Checkpoint,
    limit_s: float | None,
    require: Callable[[], None] = lambda: None,
) -> Any:
    """Send new requests to `target` once it is proven. Returns what was found.

    Args:
        limit_s: patience with the engine; None for its own.
        require: called before anybody gets it; what it raises leaves what is served.

    Raises:
        RtrlError: it did not work; what was served still is, and was proven again.
        HungError: with a `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s):
            found, route = await beside.attach(target.path)
    except (TimeoutError, DependencyDownError) as error:
        if limit_s is None:
            raise
        raise HungError from error
    except RtrlError as error:
        try:
            _, served.route = await beside.attach(served.checkpoint.path)
        except RtrlError:
            raise DamagedError(error) from error
        raise
    require()
    served.checkpoint, served.route = target, route
    return found
