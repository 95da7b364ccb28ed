"""A signal that arrives while tasks run ends the command without asyncio's traceback of the task it met."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, os, signal, sys
from rtrl_cli import main

signal.signal(signal.SIGINT, main._on_signal)

async def work():
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)

async def all_of_it():
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work())

asyncio.run(all_of_it())
"""


def test_an_interrupted_task_is_told_of_by_no_traceback() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (130, "")
