"""A rollback of a canary whose users are about to become more, or to come back: they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stages.deploy.run import DeployStage
from stages.runner import run_stage
from stages.serving.detach import serving_pid, start_detached, stop
from stages.target import light
from stages.target.canary import canary_of
from tests import processes
from tests.stages.rollback.test_first import digest_of_answer, rollback, until
from tests.stages.serving.conftest import SETTINGS, StubWorld

SOON_S = 30.0  # far less than the engine is held up
NOBODY = 1e-9  # of the users: who asks here is answered by the live engine


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StubWorld]:
    """The first checkpoint is live, a canary of the second open."""
    made = StubWorld(tmp_path, f"{SETTINGS}shadow_requests = 0\n")
    start_detached(made.workspace)
    run_stage(made.workspace, made.store, DeployStage(canary=NOBODY), [made.second.ref])
    yield made
    stop(made.workspace)


def test_a_promotion_that_was_killed_does_not_go_on(world: StubWorld) -> None:
    """It waited for an answer in flight; everybody got what had been rolled back, for seconds."""
    hold = world.root / "hold"
    hold.touch()
    command = [sys.executable, "-m", "rtrl_cli.main", "deploy", "-w", str(world.workspace.root), "--quiet"]
    with ThreadPoolExecutor(30) as threads:
        long = threads.submit(world.ask, f"stub:hold={hold}")
        until(lambda: (light.served(world.endpoint) or {}).get("in_flight"))
        promotion = processes.Popen([*command, "--promote"], stdout=subprocess.DEVNULL)
        asked: list[Future[httpx.Response]] = []

        def held() -> object:
            asked.append(threads.submit(world.ask))
            return (light.served(world.endpoint) or {}).get("held")

        until(held)
        promotion.kill()
        promotion.wait()
        assert rollback(world).wait(60) == 0
        hold.unlink()
        assert long.result().status_code == 200
        answers = {each.result().json()["system_fingerprint"] for each in asked}
    live = world.first.digest[7:23]
    assert answers == {live}
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert digest_of_answer(world) == live
    assert canary_of(world.store, "auto") is None


def test_its_engine_that_starts_again_is_not_waited_for(world: StubWorld) -> None:
    """After a restart of the gateway; the rollback waited for the engine, and failed where that took long."""
    hold = world.root / "hold"
    slow = world.checkpoint("slow", world.first.digest, words=f"stub:hold={hold}")
    world.report(slow, world.first)
    assert rollback(world).wait(60) == 0
    run_stage(world.workspace, world.store, DeployStage(canary=NOBODY), [slow.ref])
    hold.touch()  # its warm-up waits
    os.kill(world.endpoint.pid, signal.SIGKILL)
    until(lambda: serving_pid(world.workspace) is None)
    start_detached(world.workspace)
    until(lambda: (light.served(world.endpoint) or {}).get("canary_opening"))
    assert rollback(world).wait(SOON_S) == 0
    assert canary_of(world.store, "auto") is None
    told = light.served(world.endpoint) or {}
    assert (told["canary"], told.get("canary_opening")) == (None, None)
    assert digest_of_answer(world) == world.first.digest[7:23]
