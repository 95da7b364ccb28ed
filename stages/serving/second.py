"""A second engine, on weights that the running one cannot take: started before anybody waits for it.

For checkpoints that differ in more than their weights (configuration, tokenizer, template). Where memory is
too small for two engines, the running one has to be started anew, and its users wait. Not here: when traffic
moves to it (`supervisor.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil

from stages.engine.config import EngineConfig
from stages.engine.diagnose import explained
from stages.engine.free_port import free_port
from stages.engine.identity import Identity, UpdateImpossibleError, require_same_model
from stages.engine.process import EngineProcess
from stages.engine.update import EngineControl
from stages.errors import RtrlError

HEADROOM = 1.2  # of what the running engine takes


def in_the_way(started_with: Identity, path: Path) -> str:
    """Why an engine that was started on one checkpoint cannot take another's weights; "" when it can."""
    try:
        require_same_model(started_with, path)
    except UpdateImpossibleError as error:
        return error.message
    return ""


def too_small(pid: int) -> str:
    """Why there cannot be a second engine like the one of process `pid`; "" when there can."""
    if Path("/dev/nvidia0").exists():
        return "the running one holds the GPU's memory"
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
        taken = sum(each.memory_info().rss for each in processes)
    except psutil.Error:
        return "the running one has ended"
    free = psutil.virtual_memory().available
    if free < HEADROOM * taken:
        return f"it takes {taken / 2**30:.1f} GiB and {free / 2**30:.1f} are free"
    return ""


class Ending:
    """Processes that end while others answer: giving their memory back may take seconds."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[int]] = set()

    def add(self, process: EngineProcess) -> None:
        """Kill it, in a thread."""
        task = asyncio.create_task(asyncio.to_thread(process.kill))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def over(self) -> None:
        """Returns when none is left."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def start_second(
    path: Path, config: EngineConfig, log: Path, say: Callable[[str], None]
) -> EngineProcess:
    """An engine on `path`, on a port of its own, healthy and verified. Raises RtrlError; nothing is left."""
    engine = EngineProcess.start(path, config, log, port=free_port())
    try:
        await asyncio.to_thread(engine.wait_healthy, say)
        with explained(lambda: engine):
            async with EngineControl(engine.base_url, engine.key, config, path) as control:
                await control.verify(path)
    except (RtrlError, asyncio.CancelledError):
        engine.kill()
        raise
    return engine
