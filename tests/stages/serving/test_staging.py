"""Weights made ready while requests are answered, by real commands: killed, two at once, rolled back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stages.gateway.served import Checkpoint
from stages.serving.ahead import StagedAhead
from stages.serving.detach import start_detached, stop
from stages.stage import Artifact
from stages.target.admin import Admin
from tests import processes
from tests.stages.serving.conftest import SETTINGS, StubWorld


class World(StubWorld):
    """Its engine makes no weights ready while somebody holds it up."""

    def __init__(self, root: Path) -> None:
        self.hold = root / "hold"
        super().__init__(
            root, SETTINGS.replace("[engine]", f'[engine]\nextra_args = ["--stage-hold", "{self.hold}"]')
        )

    @contextmanager
    def staging(self, *arguments: str) -> Iterator[processes.Popen]:
        """`rtrl deploy`, which is in the middle of staging until the block ends."""
        reached = self.hold.with_name("hold.reached")
        reached.unlink(missing_ok=True)
        self.hold.touch()
        try:
            deploying = begun(self, "deploy", *arguments)
            while not (reached.exists() and self.store.deployments.unfinished("auto")):
                assert deploying.poll() is None
                time.sleep(0.02)
            yield deploying
        finally:
            self.hold.unlink()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("staging"))
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def command(world: StubWorld, *arguments: str, fault: str = "") -> processes.Done:
    return processes.rtrl(*arguments, "-w", str(world.workspace.root), env={"RTRL_FAULT": fault})


def begun(world: StubWorld, *arguments: str) -> processes.Popen:
    line = [sys.executable, "-m", "rtrl_cli.main", *arguments, "-w", str(world.workspace.root), "--quiet"]
    return processes.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has the file: of a lock that it holds, or waits for."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if each.readlink() == path:
                return True
    return False


def served(world: StubWorld) -> str:
    admin = Admin(world.endpoint)
    return admin.served().checkpoint


def child(world: StubWorld, name: str, parent: Artifact) -> Artifact:
    made = world.checkpoint(name, parent.digest)
    world.report(made, parent)
    return made


def test_a_deploy_killed_while_weights_are_staged_changes_nothing(world: StubWorld) -> None:
    killed = command(world, "deploy", fault="switch.staged.after")
    assert killed.returncode == -signal.SIGKILL
    voice = world.voice()
    assert (served(world), world.voice()) == (world.first.digest, voice)
    done = command(world, "deploy")
    assert done.returncode == 0, done.stderr
    assert "read and packed before requests were held" in done.stdout
    assert served(world) == world.second.digest
    assert world.voice() != voice


@pytest.mark.parametrize("victim", ["deploy", "engine"])
def test_killed_in_the_middle_of_staging_the_old_weights_are_served(world: World, victim: str) -> None:
    """And the same deploy again succeeds. A gateway whose caller died ends the swap, then takes it back."""
    live = world.store.alias("auto", "live")
    assert live is not None
    target, voice = child(world, f"killed-{victim}", live), world.voice()
    # with a setting of its own nothing is heard of it ahead: staging begins with the swap
    with world.staging("--input", target.ref, "--set", "deploy.drain_timeout_s=9") as deploying:
        assert [each.state for each in world.store.deployments.unfinished("auto")] == ["verifying"]
        os.kill(deploying.pid if victim == "deploy" else world.endpoint.engine.pid, signal.SIGKILL)
        assert deploying.wait(60) == (-signal.SIGKILL if victim == "deploy" else 13)
    deadline = time.monotonic() + 60
    while (
        world.store.deployments.unfinished("auto")
        or world.ask().status_code != 200
        or served(world) != live.digest
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert world.voice() == voice
    done = command(world, "deploy", "--input", target.ref)
    assert done.returncode == 0, done.stderr
    assert served(world) == target.digest
    assert world.voice() != voice


def test_a_rollback_while_weights_are_staged_ends_where_it_should(world: World) -> None:
    """It waits for the deploy, and takes that back from memory."""
    before = world.store.alias("auto", "live")
    assert before is not None
    third = child(world, "third", before)
    rollback = [sys.executable, "-m", "rtrl_cli.main", "rollback", "--lock-timeout", "60"]
    with world.staging("--input", third.ref) as deploying:
        back = processes.Popen([*rollback, "-w", str(world.workspace.root)], stdout=subprocess.PIPE)
        while not has_open(back.pid, world.store.lock_path("target-auto")):
            assert back.poll() is None
            time.sleep(0.02)
    said, _ = back.communicate(timeout=120)
    assert (deploying.wait(), back.returncode) == (0, 0), said
    assert "in place, from its memory" in said
    moved, took = (float(one) for one in re.findall(r"([\d.]+) s$", said, re.MULTILINE))
    assert moved <= took, "both from the same moment on"
    assert served(world) == before.digest


def test_of_two_deploys_at_once_one_is_served(world: StubWorld) -> None:
    before = world.store.alias("auto", "live")
    assert before is not None
    both = [child(world, name, before) for name in ("fourth", "fifth")]
    ended = [each.wait() for each in [begun(world, "deploy", "--input", one.ref) for one in both]]
    live = world.store.alias("auto", "live")
    assert live is not None
    assert served(world) == live.digest
    assert live.digest in [one.digest for one in both]
    # the other came meanwhile, or after it, when the report was not about what was live
    assert sorted(ended) in ([0, 3], [0, 11])


def test_what_the_gate_would_not_let_through_is_not_staged(tmp_path: Path) -> None:
    world = StubWorld(tmp_path)
    worse = world.checkpoint("worse", world.first.digest)

    asked: list[str] = []

    class Swapper:
        def stage_ahead(self, target: Checkpoint) -> bool:
            asked.append(target.digest)
            return True

    async def ask(ref: str, *, override: bool = False) -> None:
        ahead.ask(ref, override)
        assert ahead._finding is not None
        await ahead._finding

    ahead = StagedAhead(world.store, "auto", Swapper())  # type: ignore[arg-type]

    async def all_of_it() -> None:
        await ask(worse.ref)
        await ask("checkpoint@v99")
        await ask("")
        await ask(worse.ref, override=True)

    asyncio.run(all_of_it())
    assert asked == [world.second.digest, worse.digest]
