"""Who starts a canary's engine is told to end before it serves: nobody waits, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from stages.registry.deployments import Deployment
from stages.serving.detach import start_detached, stop
from tests import processes
from tests.stages.serving.conftest import SETTINGS, StubWorld
from tests.stages.serving.test_lifecycle import gone
from tests.stages.serving.test_running import wait_for

PROMPT_S = 15.0  # with both cores busy; what it took was shutdown_timeout_s, 30 s, or the engine's start
CANARY = ("--canary", "0.5")
POPULATION = """
[populations.acme]
labels = ["acme-ide"]
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StubWorld]:
    made = StubWorld(tmp_path, SETTINGS + POPULATION)
    made.report(made.second, made.first, "acme")
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def engines(world: StubWorld) -> set[int]:
    found = set()
    for child in psutil.Process(world.endpoint.pid).children():
        with suppress(psutil.Error):
            if "stages.engine.launch" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def deploy(world: StubWorld, *flags: str) -> processes.Popen:
    line = [sys.executable, "-m", "rtrl_cli.main", "deploy", "--quiet", *flags]
    return processes.Popen(
        [*line, "-w", str(world.workspace.root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def opening(world: StubWorld, *flags: str) -> tuple[processes.Popen, int]:
    """A deploy whose engine does not get ready, and that engine's pid."""
    before = engines(world)
    command = deploy(world, *flags)
    assert wait_for(lambda: len(engines(world) - before) == 1)
    (pid,) = engines(world) - before
    os.kill(pid, signal.SIGSTOP)
    return command, pid


def last(world: StubWorld, line: str = "auto") -> Deployment:
    return world.store.deployments.history(line)[0]


@pytest.mark.parametrize("flags", [CANARY, ("--line", "acme"), ("--line", "acme", *CANARY)])
def test_serving_ends_without_it(world: StubWorld, flags: tuple[str, ...]) -> None:
    line = "acme" if "acme" in flags else "auto"
    command, pid = opening(world, *flags)
    serving, begun = world.endpoint.pid, time.monotonic()
    os.kill(serving, signal.SIGTERM)
    assert wait_for(lambda: gone(serving))
    seconds = time.monotonic() - begun
    _, err = command.communicate(timeout=60)
    assert gone(pid)
    assert (command.returncode, last(world, line).state) == (13, "failed"), err
    assert "`rtrl serve` is ending" in err
    assert seconds < PROMPT_S


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_deploy_ends_and_so_does_its_engine(world: StubWorld, number: int, code: int) -> None:
    command, pid = opening(world, *CANARY)
    begun = time.monotonic()
    command.send_signal(number)
    _, err = command.communicate(timeout=60)
    assert command.returncode == code, err
    assert time.monotonic() - begun < PROMPT_S
    assert gone(pid)
    again = deploy(world, *CANARY)
    _, err = again.communicate(timeout=60)
    assert (again.returncode, last(world).state) == (0, "canary"), err
