"""Traffic first: the users are back on the previous weights whatever else is slow, locked or dead."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages import locks
from stages.deploy.run import DeployStage
from stages.errors import LockedError
from stages.rollback.away import Asked
from stages.rollback.first import _locked, move_first
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.target import light
from stages.target.completed import complete
from stages.target.endpoint import running_endpoint
from stages.target.intent import Intent, read_intent, write_intent
from tests import processes
from tests.stages.serving.conftest import StubWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubWorld]:
    made = StubWorld(tmp_path_factory.mktemp("first"))
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


@pytest.fixture
def deployed(world: StubWorld) -> StubWorld:
    """The second checkpoint is live and served."""
    live = world.store.alias("auto", "live")
    if live is None or live.digest != world.second.digest:
        run_stage(world.workspace, world.store, DeployStage(), [world.second.ref])
    return world


def states(world: StubWorld) -> list[str]:
    return [each.state for each in world.store.deployments.history("auto")]


def rollback(world: StubWorld, **env: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rtrl_cli.main", "rollback", "-w", str(world.workspace.root), "--quiet"]
    return subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL)


def digest_of_answer(world: StubWorld) -> str:
    return str(world.ask().json()["system_fingerprint"])


def waits(pid: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    with contextlib.suppress(FileNotFoundError):
        return any(fd.readlink().name == name for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


def until(true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for(digest: str, world: StubWorld, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while digest_of_answer(world) != digest.removeprefix("sha256:")[:16]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_deploy_that_waits_for_long_answers_gives_way(deployed: StubWorld) -> None:
    world, later = deployed, deployed.checkpoint("later", deployed.second.digest)
    world.report(later, world.second)
    command = [sys.executable, "-m", "rtrl_cli.main", "deploy", "-w", str(world.workspace.root), "--quiet"]
    with ThreadPoolExecutor(20) as threads:
        long = threads.submit(world.ask, "stub:delay=600")
        until(lambda: (light.served(world.endpoint) or {}).get("in_flight"))
        deploy = processes.Popen(
            [*command, "--input", later.ref], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        asked: list[Future[httpx.Response]] = []

        def held() -> object:
            asked.append(threads.submit(world.ask))
            return (light.served(world.endpoint) or {}).get("held")

        until(held)
        assert rollback(world).wait(60) == 0
        assert long.result().json()["error"]["code"] == "weights_updating"
        assert {each.result().status_code for each in asked} == {200}
        told = deploy.communicate(timeout=60)[1]
        assert (deploy.returncode, "deploy again" in told) == (11, True), told
    assert digest_of_answer(world) == world.first.digest[7:23]
    by_age = {each.checkpoint: each.state for each in reversed(world.store.deployments.history("auto"))}
    assert (by_age[later.digest], by_age[world.first.digest]) == ("failed", "live")


def test_whoever_finds_the_line_taken_by_a_rollback_is_told_so(deployed: StubWorld) -> None:
    path = deployed.store.lock_path("target-auto")
    lock = _locked(path, "target-auto", deployed.endpoint, "auto", 5.0)
    try:
        with pytest.raises(LockedError, match=rf"target-auto is locked by rollback \(pid {os.getpid()} "):
            locks.acquire(path, what="target-auto")
    finally:
        lock.release()


def test_users_are_back_while_another_program_writes_to_the_registry(deployed: StubWorld) -> None:
    with contextlib.closing(sqlite3.connect(deployed.store.dir / "registry.db", timeout=60)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        command = rollback(deployed)
        wait_for(deployed.first.digest, deployed)
        assert command.poll() is None, "it waits to write the record"
        assert read_intent(deployed.workspace.run_dir, "auto") is not None
        other.execute("ROLLBACK")
    assert command.wait(60) == 0
    current = deployed.store.deployments.current("auto")
    assert current is not None
    assert current.checkpoint == deployed.first.digest
    assert (states(deployed)[0], "rolled_back" in states(deployed)) == ("live", True)
    assert read_intent(deployed.workspace.run_dir, "auto") is None
    spool = Spool.open(deployed.workspace.spool_dir)
    made = [g for _, g, _ in spool.generations(0, 1 << 60) if g.deployment == current.id]
    spool.close()
    assert made, "what was answered before the record is of the deployment that it names"
    assert {g.spans[0].checkpoint for g in made} == {deployed.first.digest}


@contextlib.contextmanager
def away(world: StubWorld, *, mount_point: bool) -> Iterator[None]:
    """The store is not there; with `mount_point` an empty folder is in its place. Nothing gets into it."""
    store, aside = world.store.dir, world.store.dir.with_name("aside")
    knows_the_way_back(world)
    store.rename(aside)
    if mount_point:
        store.mkdir()
    try:
        yield
        assert not list(store.rglob("*")) if mount_point else not store.exists()
    finally:
        if store.exists():
            shutil.rmtree(store)
        aside.rename(store)


def knows_the_way_back(world: StubWorld) -> None:
    """Wait until the gateway has looked at the registry since the deploy."""
    endpoint = running_endpoint(world.workspace.run_dir)
    assert endpoint is not None
    deadline = time.monotonic() + 30
    while (told := light.served(endpoint)) is None or told.get("previous") != world.first.digest:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recorded(world: StubWorld) -> str:
    """Wait until the running `rtrl serve` has put it on record; id of the deployment."""
    deadline = time.monotonic() + 30
    while read_intent(world.workspace.run_dir, "auto") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    current = world.store.deployments.current("auto")
    assert current is not None
    assert current.checkpoint == world.first.digest
    assert digest_of_answer(world) == world.first.digest.removeprefix("sha256:")[:16]
    return current.id


@pytest.mark.parametrize("mount_point", [False, True])
def test_users_are_back_while_the_store_is_away(deployed: StubWorld, *, mount_point: bool) -> None:
    before = len(states(deployed))
    with away(deployed, mount_point=mount_point):
        for _ in range(2):  # said twice it goes back once
            done = processes.rtrl("rollback", "-w", str(deployed.workspace.root), "--json")
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert (told["status"], told["metrics"]["checkpoint"]) == ("succeeded", deployed.first.digest)
            assert "not on record" in told["warnings"][0]
            assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]
    assert recorded(deployed) == told["metrics"]["deployment"]
    assert len(states(deployed)) == before + 1


def test_two_at_once_while_the_store_is_away_go_back_once(deployed: StubWorld) -> None:
    before = len(states(deployed))
    with away(deployed, mount_point=False):
        assert [each.wait(60) for each in [rollback(deployed), rollback(deployed)]] == [0, 0]
    recorded(deployed)
    assert len(states(deployed)) == before + 1


def test_users_are_back_while_the_store_takes_no_lock(deployed: StubWorld) -> None:
    knows_the_way_back(deployed)
    folder = deployed.store.dir / "locks"
    aside = folder.rename(folder.with_name("locks.aside"))
    folder.touch()  # as on a disk that has become read-only
    try:
        done = processes.rtrl("rollback", "-w", str(deployed.workspace.root), "--json")
        assert done.returncode == 0, done.stderr
        assert "not on record" in json.loads(done.stdout)["warnings"][0]
        assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]
    finally:
        folder.unlink()
        aside.rename(folder)
    recorded(deployed)


def test_a_reader_and_a_cycle_do_not_keep_it(deployed: StubWorld) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("cycle-auto", "collect-auto", "train-auto", "eval-auto"):
            stack.enter_context(locks.hold(deployed.store.lock_path(name), what=name))
        reader = stack.enter_context(contextlib.closing(sqlite3.connect(deployed.store.dir / "registry.db")))
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM artifact").fetchone()
        result = run_stage(deployed.workspace, deployed.store, RollbackStage())
    assert result.status == "succeeded"
    assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]


def test_killed_after_the_traffic_moved_it_is_put_on_record(deployed: StubWorld) -> None:
    killed = rollback(deployed, RTRL_FAULT="rollback.traffic.after")
    assert killed.wait(60) == -signal.SIGKILL
    assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]
    deadline = time.monotonic() + 30
    while read_intent(deployed.workspace.run_dir, "auto") is not None:  # the running `rtrl serve` does it
        assert time.monotonic() < deadline
        time.sleep(0.1)
    live = deployed.store.alias("auto", "live")
    assert live is not None
    assert live.digest == deployed.first.digest
    assert states(deployed)[0] == "live"
    assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]


def test_an_engine_that_hangs_is_started_anew_on_the_previous_weights(deployed: StubWorld) -> None:
    engine = deployed.endpoint.engine
    os.kill(engine.pid, signal.SIGSTOP)
    result = run_stage(
        deployed.workspace, deployed.store, RollbackStage(), (), ["rollback.engine_timeout_s=0.5"]
    )
    assert (result.status, result.metrics.get("restarting")) == ("succeeded", True)
    deadline = time.monotonic() + 60
    while deployed.ask().status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]
    assert deployed.endpoint.engine.pid != engine.pid


def test_two_who_roll_back_at_once_go_back_once(deployed: StubWorld) -> None:
    """The second one waited for the first, and then took back what that had put in the place."""
    third = deployed.checkpoint("third", deployed.second.digest)
    deployed.report(third, deployed.second)
    run_stage(deployed.workspace, deployed.store, DeployStage(), [third.ref])
    before = states(deployed).count("rolled_back")
    hold = locks.acquire(deployed.store.lock_path("target-auto"), what="test")
    command = (sys.executable, "-m", "rtrl_cli.main", "rollback", "--json", "--lock-timeout", "60", "-w")
    root = str(deployed.workspace.root)
    both = [processes.Popen([*command, root], stdout=subprocess.PIPE) for _ in range(2)]
    while not all(waits(each.pid, "target-auto.lock") for each in both):
        time.sleep(0.02)
    hold.release()
    told = [json.loads(each.communicate(timeout=60)[0]) for each in both]
    assert sorted(each["status"] for each in told) == ["noop", "succeeded"]
    assert {each["metrics"]["checkpoint"] for each in told} == {deployed.second.ref}
    live = deployed.store.alias("auto", "live")
    assert live is not None
    assert (live.digest, states(deployed).count("rolled_back")) == (deployed.second.digest, before + 1)
    assert digest_of_answer(deployed) == deployed.second.digest.removeprefix("sha256:")[:16]
    assert processes.rtrl("rollback", "-w", root).returncode == 0  # asked for after that: one further
    assert digest_of_answer(deployed) == deployed.first.digest.removeprefix("sha256:")[:16]


def test_what_is_unusual_is_left_to_the_stage(world: StubWorld, tmp_path: Path) -> None:
    other = StubWorld(tmp_path / "other")
    assert move_first(other.workspace.root, Asked("auto", "nothing is served")) is None
    assert move_first(world.workspace.root, Asked("no-such-line", "")) is None
    assert not list(world.store.lock_path("x").parent.glob("*no-such-line*"))
    live = world.store.alias("auto", "live")
    assert live is not None
    if live.digest == world.first.digest and world.store.deployments.current("auto") is None:
        assert move_first(world.workspace.root, Asked("auto", "nothing was live before")) is None


def test_a_section_that_is_none_is_told_by_the_stage(world: StubWorld) -> None:
    """`rollback = 5` was a bug (exit 1)."""
    file = world.workspace.root / "rtrl.toml"
    whole = file.read_text()
    try:
        for wrong in ("rollback = 5", 'populations = "auto"'):
            file.write_text(f"{wrong}\n{whole}")
            assert move_first(world.workspace.root, Asked("auto", "test")) is None
    finally:
        file.write_text(whole)


def test_settings_that_cannot_be_read_are_told_after_it(deployed: StubWorld) -> None:
    """It failed with exit 2 after the users had been moved: who repeated it went one checkpoint too far."""
    file = deployed.workspace.root / "rtrl.toml"
    whole = file.read_text()
    file.write_text(whole + "\n[collect]\nnope = 1\n")
    try:
        done = processes.rtrl("rollback", "-w", str(deployed.workspace.root), "--json")
    finally:
        file.write_text(whole)
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert (told["status"], told["metrics"]["checkpoint"]) == ("succeeded", deployed.first.ref)
    assert "unknown setting collect.nope" in told["warnings"][0]
    current = deployed.store.deployments.current("auto")
    assert current is not None
    assert (current.checkpoint, current.id) == (deployed.first.digest, told["metrics"]["deployment"])
    assert read_intent(deployed.workspace.run_dir, "auto") is None
    locks.acquire(deployed.store.lock_path("target-auto"), what="test").release()


def test_a_rollback_that_the_registry_has_is_only_forgotten(world: StubWorld, tmp_path: Path) -> None:
    live = world.store.alias("auto", "live")
    assert live is not None
    intent = Intent(
        line="auto", checkpoint=live.digest, leaving="sha256:gone", deployment="d", reason="", by="me"
    )
    write_intent(tmp_path, intent)
    before = states(world)
    assert complete(world.store, tmp_path, "auto")
    assert (states(world), read_intent(tmp_path, "auto")) == (before, None)
    (tmp_path / "rollback-auto.json").write_text("{")
    assert not complete(world.store, tmp_path, "auto")


@pytest.mark.parametrize(
    "told",
    [None, {"line": "auto", "checkpoint": "sha256:1"}, {"line": "acme", "checkpoint": "sha256:1"}],
)
def test_what_the_gateway_does_not_know_is_left_to_the_stage(
    deployed: StubWorld, told: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with away(deployed, mount_point=True):  # and nothing is written where the store is not
        monkeypatch.setattr("stages.rollback.traffic.served", lambda _: told)
        assert move_first(deployed.workspace.root, Asked("auto", "test")) is None
    assert read_intent(deployed.workspace.run_dir, "auto") is None
    assert digest_of_answer(deployed) == deployed.second.digest.removeprefix("sha256:")[:16]
