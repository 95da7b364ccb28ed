"""A rollback while a deploy tries a candidate that nobody uses yet: the candidate gives way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.deploy.run import DeployStage
from stages.engine.config import EngineConfig
from stages.errors import LockedError
from stages.gateway.arms import Arm, Arms
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.served import Checkpoint, ServedState
from stages.registry.looks import shadows_of
from stages.runner import run_stage
from stages.serving.canary import CanaryEngine
from stages.serving.detach import start_detached, stop
from stages.target import light
from stages.target.admin import Admin
from tests import processes
from tests.stages.rollback.test_first import digest_of_answer, rollback, until
from tests.stages.serving.conftest import SETTINGS, StubWorld
from tests.stages.serving.test_lifecycle import gone


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubWorld]:
    """The second checkpoint is live, and what shadow replay needs is recorded."""
    settings = SETTINGS.replace("[engine]", "[engine]\nwarmup_requests = 0")  # the candidate answers nobody
    made = StubWorld(tmp_path_factory.mktemp("candidate"), settings)
    start_detached(made.workspace)
    run_stage(made.workspace, made.store, DeployStage(), [made.second.ref])
    for number in range(10):
        assert made.ask(f"question {number}").status_code == 200
    Admin(made.endpoint).flush_spool()
    yield made
    stop(made.workspace)


def test_in_shadow_replay(world: StubWorld) -> None:
    hold = world.root / "hold"
    hold.touch()
    candidate = world.checkpoint("held", world.second.digest, words=f"stub:hold={hold}")
    world.report(candidate, world.second)
    command = [sys.executable, "-m", "rtrl_cli.main", "deploy", "-w", str(world.workspace.root), "--quiet"]
    flags = ["--input", candidate.ref, "--canary", "0.5"]
    deploy = processes.Popen([*command, *flags], stderr=subprocess.PIPE)
    until(lambda: (light.served(world.endpoint) or {}).get("canary"))
    assert rollback(world).wait(60) == 0
    _, err = deploy.communicate(timeout=60)
    assert (deploy.returncode, "a rollback came before" in err) == (11, True), err
    assert digest_of_answer(world) == world.first.digest[7:23]
    ended = next(d for d in world.store.deployments.history("auto") if d.checkpoint == candidate.digest)
    assert ended.state == "failed"
    assert shadows_of(world.store, ended.id) == []
    until(lambda: world.endpoint.canary is None)


async def test_while_its_engine_starts(tmp_path: Path) -> None:
    world = StubWorld(tmp_path)
    first = Checkpoint(world.first.digest, world.first.path)
    served = ServedState(line="auto", model="rtrl", checkpoint=first, engine="ready")
    config = GatewayConfig()
    arms = Arms(Arm(served, EngineClient("http://127.0.0.1:9", "", "rtrl", config)))
    engine = CanaryEngine(EngineConfig(program="stub"), config, arms, tmp_path / "log", print)
    second = Checkpoint(world.second.digest, world.second.path, "deployment-1")
    opening = asyncio.create_task(engine.open(second, salt="salt", share=0.5))
    while engine.supervisor is None or engine.supervisor.pid is None:
        await asyncio.sleep(0)
    pid = engine.supervisor.pid
    engine.hurry()
    engine.hurry()
    with pytest.raises(LockedError, match="a rollback came before"):
        await opening
    assert arms.as_dict()["canary"] is None
    assert arms.opening == ""
    assert gone(pid)
    await engine.open(second, salt="salt", share=0.5)
    engine.hurry()  # it has users: that is for the rollback itself
    assert arms.canary is not None
    assert await engine.close(1) == "deployment-1"
    third = asyncio.create_task(engine.open(second, salt="salt", share=0.5))
    while not arms.opening:
        await asyncio.sleep(0)
    async with asyncio.timeout(5):  # nor does the end of the gateway wait for it
        assert await engine.close(1) == ""
    with pytest.raises(LockedError, match="a rollback came before"):
        await third
    assert engine.supervisor is None
