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
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_lifecycle import gone
from tests.stages.serving.test_running import wait_for

PROMPT_S = 15.0  # with both cores busy; what it took was shutdown_timeout_s, 30 s, or the engine's start


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StubWorld]:
    made = StubWorld(tmp_path)
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


def deploy(world: StubWorld) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "rtrl_cli.main", "deploy", "--canary", "0.5", "--quiet"]
    return subprocess.Popen(
        [*line, "-w", str(world.workspace.root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def opening(world: StubWorld) -> tuple[subprocess.Popen[str], int]:
    """A deploy whose canary's engine does not get ready, and that engine's pid."""
    before = engines(world)
    command = deploy(world)
    assert wait_for(lambda: len(engines(world) - before) == 1)
    (pid,) = engines(world) - before
    os.kill(pid, signal.SIGSTOP)
    return command, pid


def last(world: StubWorld) -> Deployment:
    return world.store.deployments.history("auto")[0]


def test_serving_ends_without_it(world: StubWorld) -> None:
    command, pid = opening(world)
    serving, begun = world.endpoint.pid, time.monotonic()
    os.kill(serving, signal.SIGTERM)
    assert wait_for(lambda: gone(serving))
    seconds = time.monotonic() - begun
    _, err = command.communicate(timeout=60)
    assert gone(pid)
    assert (command.returncode, last(world).state) == (13, "failed"), err
    assert "`rtrl serve` is ending" in err
    assert seconds < PROMPT_S


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_deploy_ends_and_so_does_its_engine(world: StubWorld, number: int, code: int) -> None:
    command, pid = opening(world)
    begun = time.monotonic()
    command.send_signal(number)
    _, err = command.communicate(timeout=60)
    assert command.returncode == code, err
    assert time.monotonic() - begun < PROMPT_S
    assert gone(pid)
    again = deploy(world)
    _, err = again.communicate(timeout=60)
    assert (again.returncode, last(world).state) == (0, "canary"), err
