"""A signal that arrives while tasks run ends the command without asyncio's traceback of the task it met."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import ModuleType

import pytest

from rtrl_cli import main
from stages import interrupts
from tests.stages.signalled import heard

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


def test_a_signal_that_meets_an_import_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler imported what was half imported: exit 1, a bug, and the signal was lost."""
    for name in ("logging", "asyncio.log"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(interrupts, "_met", [])
    with heard(), pytest.raises(SystemExit) as caught:
        main._on_signal(signal.SIGTERM, None)
    assert caught.value.code == 143
