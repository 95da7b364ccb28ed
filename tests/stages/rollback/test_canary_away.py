"""A canary is open, and the store is away: its users are back all the same, and the record follows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import locks
from stages.deploy.run import DeployStage
from stages.errors import DependencyDownError, StoreError
from stages.gateway.arms import assigned
from stages.registry.deployments import Deployment
from stages.rollback import away, first, recorded
from stages.rollback.away import Asked
from stages.rollback.patience import Patience
from stages.rollback.recorded import finish_away, finish_moved
from stages.rollback.run import RollbackStage
from stages.rollback.traffic import Moved, intend, told_of
from stages.runner import run_stage
from stages.serving.detach import serving_pid, start_detached, stop
from stages.spool import Spool
from stages.stage import Artifact
from stages.target import light
from stages.target.admin import Admin
from stages.target.canary import canary_of
from stages.target.intent import read_intent, write_intent
from tests import processes
from tests.stages.serving.conftest import SETTINGS, StubWorld
from tests.stages.serving.test_canary import USERS, ask, short, wait_for

SHARE = 0.4


class World(StubWorld):
    """`second` is live and was deployed after `first`; `third` is what a canary tries."""

    third: Artifact

    def told(self) -> dict[str, Any]:
        """What the gateway says that it serves."""
        return light.served(self.endpoint) or {}

    def answers(self) -> set[str]:
        """What the users get."""
        return {ask(self, user) for user in USERS}

    def open(self) -> Deployment:
        """A canary of `third` beside `second`."""
        live = self.store.alias("auto", "live")
        if live is None or live.digest != self.second.digest:
            run_stage(self.workspace, self.store, DeployStage(), [self.second.ref])
        run_stage(self.workspace, self.store, DeployStage(canary=SHARE), [self.third.ref])
        made = canary_of(self.store, "auto")
        assert made is not None
        assert self.answers() == {short(self.second.digest), short(self.third.digest)}
        return made

    def rtrl(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit status and document of `rtrl rollback`."""
        done = processes.rtrl("rollback", *words, "--json", "-w", str(self.workspace.root))
        return done.returncode, json.loads(done.stdout)

    def begin(self, *words: str, **env: str) -> processes.Popen:
        command = [sys.executable, "-m", "rtrl_cli.main", "rollback", *words, "-w", str(self.workspace.root)]
        return processes.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The store is not there, and nothing comes in its place."""
        aside = self.store.dir.with_name("aside")
        self.store.dir.rename(aside)
        try:
            yield
            assert not self.store.dir.exists()
        finally:
            aside.rename(self.store.dir)

    def recorded(self) -> bool:
        """Wait until the running `rtrl serve` has put it on record."""
        return wait_for(lambda: read_intent(self.workspace.run_dir, "auto") is None)

    def live(self) -> str:
        found, current = self.store.alias("auto", "live"), self.store.deployments.current("auto")
        assert found is not None
        assert current is not None
        assert current.checkpoint == found.digest
        return found.digest


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("away")
    made = World(root, SETTINGS.replace("[deploy]", "[deploy]\nshadow_requests = 0"))
    made.third = made.checkpoint("third", made.second.digest)
    made.report(made.third, made.second)
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def test_its_users_are_back_whenever_a_command_dies_and_two_at_once_go_no_further(world: World) -> None:
    canary, before = world.open(), len(world.store.deployments.history("auto", limit=None))
    second, third = short(world.second.digest), short(world.third.digest)
    points = {
        "rollback.intent.after": {second, third},  # nobody has been moved yet
        "rollback.canary.after": {second},
    }
    with world.away():
        for point, answers in points.items():
            assert world.begin(RTRL_FAULT=point).wait(60) == -signal.SIGKILL
            assert world.answers() == answers
        both = [world.begin("--json"), world.begin("--json")]
        said = [json.loads(each.communicate(timeout=60)[0]) for each in both]
        for told in said:
            assert (told["status"], told["metrics"]["canary_ended"]) == ("succeeded", canary.id)
            assert "not on record" in told["warnings"][0]
        assert world.answers() == {second}
    assert world.recorded()
    ended = world.store.deployments.get(canary.id)
    assert (ended.state, ended.data["ended_as"], ended.salt) == ("rolled_back", "canary", canary.salt)
    assert len(world.store.deployments.history("auto", limit=None)) == before
    assert wait_for(lambda: "canary_ended" not in world.told())  # it has looked since
    assert (world.live(), world.told()["canary"], world.answers()) == (world.second.digest, None, {second})
    Admin(world.endpoint).flush_spool()
    spool = Spool.open(world.workspace.spool_dir)
    made = [g for _, g, _ in spool.generations(0, 1 << 60)]
    spool.close()
    arms = {(g.arm, g.spans[0].checkpoint, assigned(g.user, canary.salt, SHARE)) for g in made}
    assert arms == {
        ("live", world.second.digest, False),
        ("live", world.second.digest, True),  # after the rollback
        ("canary", world.third.digest, True),
    }


def test_to_ends_the_canary_too_and_a_gateway_that_starts_anew_opens_it_not_again(world: World) -> None:
    canary = world.open()
    assert wait_for(lambda: world.told().get("previous") == world.first.digest)
    with world.away():
        code, told = world.rtrl("--to", "checkpoint@v77")
        assert code == 10
        assert "checkpoint@v77" in told["error"]["message"]
        assert world.first.ref in told["error"]["hint"]
        assert short(world.third.digest) in world.answers()
        code, told = world.rtrl("--to", world.first.ref)
        assert (code, told["metrics"]["checkpoint"]) == (0, world.first.digest)
        assert world.answers() == {short(world.first.digest)}
        os.kill(world.endpoint.pid, signal.SIGKILL)
        assert wait_for(lambda: serving_pid(world.workspace) is None)
    start_detached(world.workspace)
    assert world.store.deployments.get(canary.id).state == "rolled_back"
    assert world.live() == world.first.digest
    assert (world.told()["canary"], world.answers()) == (None, {short(world.first.digest)})
    assert read_intent(world.workspace.run_dir, "auto") is None


def test_its_users_are_back_while_another_program_writes_to_the_registry(world: World) -> None:
    canary = world.open()
    with contextlib.closing(sqlite3.connect(world.store.dir / "registry.db", timeout=60)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        command = world.begin()
        assert wait_for(lambda: world.answers() == {short(world.second.digest)})
        assert command.poll() is None, "it waits to write the record"
        other.execute("ROLLBACK")
    assert command.wait(60) == 0
    assert world.store.deployments.get(canary.id).state == "rolled_back"
    assert (world.live(), read_intent(world.workspace.run_dir, "auto")) == (world.second.digest, None)


def test_a_registry_that_cannot_be_read_is_as_good_as_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = world.open()

    def locked(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(first, "_reading", locked)
    begun = first.begin(world.workspace.root, "worse")
    assert begun.asked == canary.id, "by the gateway: when the store is back in a moment, it goes no further"
    moved = begun.moved
    assert moved is not None
    assert moved.lock is not None
    assert world.answers() == {short(world.second.digest)}
    told = finish_moved(world.workspace.root, moved, DependencyDownError("the registry stayed busy"))
    assert "not on record, the registry stayed busy" in told.warnings[0]
    assert world.recorded()
    assert world.store.deployments.get(canary.id).data["rollback_reason"] == "worse"
    again = world.open()
    moved = first.move_first(world.workspace.root, Asked("auto", ""))
    assert moved is not None
    stage = RollbackStage(moved=moved)
    result = run_stage(world.workspace, world.store, stage, lock=moved.lock)
    assert (result.status, result.metrics["canary_ended"]) == ("succeeded", again.id)
    assert read_intent(world.workspace.run_dir, "auto") is None
    locks.acquire(world.store.lock_path("target-auto"), what="test").release()


def test_that_the_engine_they_are_on_now_is_down_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = world.live()
    moved = Moved(intend("auto", live, live, "", "d"), None, {}, 0.0, 0.0)
    assert finish_away(world.workspace.root, moved).warnings == []
    monkeypatch.setattr(recorded, "served_now", lambda *_: {"engine": "down"})
    assert "is down: they get 503" in finish_away(world.workspace.root, moved).warnings[0]


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
LIVE = {"line": "auto", "checkpoint": B, "deployment": "d2", "canary": None}
BACK = {"previous": A, "previous_ref": "checkpoint@v1", "previous_path": "/a"}
OPEN = {"checkpoint": C, "deployment": "d3", "share": 0.1}


@pytest.mark.parametrize(
    ("told", "to", "expected"),
    [
        (LIVE | BACK, "", (B, A, "")),
        (LIVE | BACK | {"canary": OPEN}, "", (B, B, "d3")),
        (LIVE | BACK | {"canary": OPEN}, "checkpoint@v1", (B, A, "d3")),
        (LIVE | BACK | {"canary": OPEN}, A[:20], (B, A, "d3")),
        (LIVE | BACK | {"canary": OPEN}, B, (B, B, "d3")),
        (LIVE | BACK | {"canary_opening": "d3"}, "", (B, B, "d3")),  # it will have users soon
        (LIVE | BACK | {"canary_ended": "d3"}, "", (B, B, "d3")),  # by itself: it is what they mean
        (LIVE | BACK | {"canary_ended": "d2"}, "", (B, A, "")),  # it was promoted
        (LIVE | BACK, B, None),
        (LIVE, "", None),
        (LIVE | BACK | {"canary": OPEN | {"share": 0}}, "", None),  # a deploy is under way
        (LIVE | BACK | {"canary": OPEN, "deployment": "d3"}, "", None),  # and so is a promotion
        ({}, "", None),
    ],
)
def test_what_the_gateway_knows_says_what_is_done(
    told: dict[str, Any], to: str, expected: tuple[str, ...] | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    done = []

    def move(_run_dir: Path, _endpoint: object, intent: Any, weights: Path | None, _: object) -> None:
        done.append((intent.leaving, intent.checkpoint, intent.canary))
        assert weights == (Path("/a") if intent.checkpoint == A else None)

    monkeypatch.setattr(away, "served_now", lambda *_: told)
    monkeypatch.setattr(away, "move", move)
    endpoint: Any = None
    away.from_gateway(tmp_path, endpoint, Asked("auto", "", to), Patience(), 0)
    assert done == ([expected] if expected else [])


def test_what_a_lines_users_get() -> None:
    acme = {"line": "acme", "checkpoint": A, "deployment": "d1"}
    assert told_of(LIVE | {"lines": {"acme": acme}}, "acme") == acme
    assert told_of(LIVE, "acme") == {"checkpoint": B, "deployment": "d2"}, "by the main line"
    assert (told_of(LIVE, "auto"), told_of(None, "auto")) == (LIVE, {})


def test_what_is_not_on_record_yet_is_brought_to_its_end_and_to_goes_on_from_there(tmp_path: Path) -> None:
    pending = intend("auto", B, B, "worse", "d3")
    ended = LIVE | BACK | {"canary_ended": "d3"}
    assert away._intended(Asked("auto", ""), ended, pending) == pending
    further = away._intended(Asked("auto", "", A), ended, pending)
    assert further is not None
    assert (further.leaving, further.checkpoint, further.canary) == (B, A, "d3")
    moved = LIVE | {"checkpoint": A, "deployment": further.deployment}
    assert away._intended(Asked("auto", ""), moved, further) == further
    other = away._intended(Asked("auto", ""), LIVE | {"canary": OPEN | {"deployment": "d9"}}, pending)
    assert other is not None
    assert other.canary == "d9"
    with pytest.raises(StoreError, match="knows no checkpoint@v9"):
        away._intended(Asked("auto", "", "checkpoint@v9"), LIVE | BACK, None)
    write_intent(tmp_path, further)
    assert read_intent(tmp_path, "auto") == further


def test_after_a_deploy_a_rollback_is_of_that_and_not_of_a_canary_that_ended_before(world: World) -> None:
    """What was served then is on record, though `rtrl serve` may not have looked since."""
    world.open()
    run_stage(world.workspace, world.store, RollbackStage(), [])
    deploy = DeployStage(override=True, reason="it is wanted all the same")
    run_stage(world.workspace, world.store, deploy, [world.third.ref])
    assert "canary_ended" not in world.told()  # at once
    assert wait_for(lambda: world.told().get("previous") == world.second.digest)
    with world.away():
        code, told = world.rtrl()
        assert (code, told["metrics"]["checkpoint"]) == (0, world.second.digest)
        assert world.answers() == {short(world.second.digest)}
    assert world.recorded()
    assert world.live() == world.second.digest
