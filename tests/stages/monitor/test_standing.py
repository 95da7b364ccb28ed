"""What becomes of an alarm until somebody has looked: another distill, other lines, a promotion, a watch."""

from __future__ import annotations

import http.server
import json
import os
import queue
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stages import locks
from stages.deploy import run
from stages.deploy.run import DeployStage
from stages.errors import GateRejectedError, InputMissingError, IntegrityError
from stages.eval.run import EvalStage
from stages.line_in_hints import on_line
from stages.linestate import LineState
from stages.monitor import alert
from stages.monitor import standing as monitor_standing
from stages.monitor.charts import Updated, update
from stages.monitor.cycle import Cycle
from stages.monitor.gate import acknowledge, alarmed
from stages.monitor.history import History
from stages.monitor.standing import standing, waiting
from stages.populations import begin_line
from stages.registry import gc
from stages.registry.scratch import passing_scratch
from stages.registry.store import Store
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.stage import Output
from stages.workspace import Workspace
from tests import processes
from tests.stages.monitor.cycles import made
from tests.stages.world import World

HOUR = 3_600_000
ALARMS = '{"monitors": {"schema": "rtrl-monitors/1", "alarms": %s}}'


class Line(World):
    """A world whose live checkpoint has eleven quiet cycles behind it."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        super().__init__(folder, settings)
        self.before, random = quiet(self.live)
        self.random = deepcopy(random)

    def lived(self, at: int, line: str = "auto", **moved: float) -> Cycle:
        return replace(made(at * HOUR, self.random, **moved), checkpoint=self.live, line=line)

    def distilled(self, cycle: Cycle, checkpoint: str = "") -> Updated:
        """As `distill` does it: from the history before, whatever was distilled of the checkpoint already."""
        found = update(self.before, cycle)
        folder = self.root / f"state-{cycle.line}-{cycle.at}-{len(cycle.users)}"
        LineState(monitors=found.history.to_state()).save(folder)
        output = Output("line_state", {"checkpoint": checkpoint or self.live, "stage": "distill"})
        self.store.publish_external({"line_state": (output, folder)}, line=cycle.line)
        return found

    def candidate(self, found: Updated, line: str = "auto") -> Any:
        state = LineState(monitors=found.history.to_state())
        return self.store.artifact(self.checkpoint(parent=self.live, state=state, line=line))

    def refused(self, candidate: Any, workspace: Workspace | None = None, line: str = "auto") -> Any:
        return alarmed(workspace or self.workspace, self.store, candidate, self.store.alias(line, "live"))


@cache
def quiet(live: str) -> tuple[History, np.random.Generator]:
    """Eleven cycles of a checkpoint, and the numbers after those that they were drawn from."""
    random, history = np.random.default_rng(3), History()
    for at in range(11):
        history = update(history, replace(made(at * HOUR, random), checkpoint=live, line="auto")).history
    assert not history.alarms
    return history, random


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Line]:
    made_ = Line(tmp_path)
    yield made_
    made_.close()


def together(*cycles: Cycle) -> Cycle:
    """One window of all their episodes, as when the first ones were not consumed."""
    columns = {name: np.concatenate([one.columns[name] for one in cycles]) for name in cycles[0].columns}
    return replace(
        cycles[-1],
        columns=columns,
        users=[user for one in cycles for user in one.users],
        cells=[cell for one in cycles for cell in one.cells],
        reward=np.concatenate([one.reward for one in cycles]),  # type: ignore[misc]
        user=np.concatenate([one.user for one in cycles]),  # type: ignore[misc]
    )


def test_an_alarm_that_nobody_has_looked_at_outlives_the_next_distill(world: Line) -> None:
    """With calmer use pooled in the same window is quiet; the newest line state was all that was read."""
    alarming = world.lived(11, clarified=1.1)
    (alarm,) = world.distilled(alarming).alarms
    calm = world.distilled(together(alarming, *(world.lived(at) for at in range(12, 16))))
    assert not calm.alarms
    candidate = world.candidate(calm)
    assert alarm.id in world.refused(candidate).hint
    assert [one.alarm["id"] for one in standing(world.store.dir, "auto")] == [alarm.id]
    acknowledge(world.store, "auto", [alarm.id], reason="a new client asks more")
    assert world.refused(candidate) is None


def test_an_alarm_that_nobody_has_looked_at_outlives_gc(world: Line) -> None:
    """The weekly one removed the line state that held it, and the next candidate was let through."""
    alarming = world.lived(11, clarified=1.1)
    found = world.distilled(alarming)
    (alarm,) = found.alarms
    rejected = world.candidate(found)
    calm = world.distilled(together(alarming, *(world.lived(at) for at in range(12, 16))))
    candidate = world.candidate(calm)
    gc.collect(world.store, 0.0, by="cron")
    assert world.store.artifact(rejected.digest) is None, "a candidate that nobody serves is no reason"
    assert alarm.id in world.refused(candidate).hint
    acknowledge(world.store, "auto", [alarm.id], reason="a new client asks more")
    gc.collect(world.store, 0.0, by="cron")
    assert standing(world.store.dir, "auto") == [], "it has done what it was kept for"
    assert world.refused(candidate) is None
    assert acknowledge(world.store, "auto", [alarm.id], reason="again") == []


def test_an_alarm_outlives_gc_as_long_as_what_it_is_about(world: Line) -> None:
    """Of a checkpoint that nothing can serve again it blocks nothing, and keeps nothing on disk."""
    (alarm,) = world.distilled(world.lived(11, clarified=1.1)).alarms
    before = world.live
    for _ in range(gc.LAST_DEPLOYMENTS + 1):
        after = world.checkpoint(parent=world.live)
        made_ = world.store.deployments.create("auto", after, by="t", reason="t", previous=world.live)
        world.store.deployments.transition(made_.id, "staged", "verifying")
        world.store.move_alias("auto", "live", after, reason="t", deployment_id=made_.id)
        world.live = after
        gc.collect(world.store, 0.0, by="cron")
        alone = [one.alarm["id"] for one in standing(world.store.dir, "auto", [before])]
        assert alone == ([alarm.id] if world.store.artifact(before) else [])
    world.store.move_alias("auto", "anchor", after, reason="t")
    gc.collect(world.store, 0.0, by="cron")
    assert world.store.artifact(before) is None
    assert standing(world.store.dir, "auto", [before]) == []


def test_a_line_state_that_cannot_be_read_may_hold_an_alarm(world: Line) -> None:
    world.distilled(world.lived(11))
    damaged = world.store.latest("line_state")
    assert damaged is not None
    assert waiting(world.store.dir, [damaged.digest]) == set()
    state = damaged.path / "state.json"
    state.chmod(0o600)
    state.write_text("{")
    assert waiting(world.store.dir, [damaged.digest]) == {damaged.digest}


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"monitors": 3}', ALARMS % "3", ALARMS % '[{"at": 1}]', None]
)
def test_a_line_state_that_cannot_be_read_is_named_by_whoever_asks(
    world: Line, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn one was "a bug in rtrl" and ended a watch; without its file the alarm in it was gone, and the
    gate open."""
    (alarm,) = world.distilled(world.lived(11, clarified=1.1)).alarms
    torn = world.store.latest("line_state")
    assert torn is not None
    candidate = world.candidate(world.distilled(world.lived(12)))
    spoil(torn.path / "state.json", content)
    refused = world.refused(candidate)
    assert isinstance(refused, IntegrityError)
    named = f"{torn.digest.removeprefix('sha256:')}/state.json cannot be read"
    assert named in refused.message
    for ask in (
        lambda: standing(world.store.dir, "auto"),
        lambda: acknowledge(world.store, "auto", [alarm.id], reason="known"),
        lambda: EvalStage().resolve(world.workspace, world.store, {"checkpoint": candidate.ref}),
    ):
        with pytest.raises(IntegrityError, match=named):
            ask()
    monkeypatch.setenv("RTRL_MONITOR__WEBHOOK", "http://127.0.0.1:9/x")
    (warning,) = alert.tell(Workspace.find(world.workspace.root), world.store)
    assert named in warning
    past = DeployStage(override=True, reason="it is damaged", offline=True)
    assert past.resolve(world.workspace, world.store, {"checkpoint": candidate.ref})
    assert waiting(world.store.dir, [torn.digest]) == {torn.digest}


def test_a_line_state_whose_disk_does_not_give_it_cannot_be_read(world: Line) -> None:
    """The alarm in it ended `rtrl status` and gc, which only warn of one that is torn."""
    world.distilled(world.lived(11, clarified=1.1))
    lost = world.store.latest("line_state")
    assert lost is not None
    spoil(lost.path / "state.json", None)
    (lost.path / "state.json").mkdir()  # as EIO: an error of the system that is no missing file
    with pytest.raises(IntegrityError, match=r"state\.json cannot be read"):
        standing(world.store.dir, "auto")
    assert waiting(world.store.dir, [lost.digest]) == {lost.digest}


def test_a_line_state_that_nobody_needs_keeps_no_alarm_from_being_acknowledged(world: Line) -> None:
    """The gate is closed by an alarm that can be read: only restoring the file opened it."""
    found = world.distilled(world.lived(11, clarified=1.1))
    (alarm,) = found.alarms
    candidate, rejected = world.candidate(found), world.checkpoint(parent=world.live, state=LineState())
    damaged = world.store.line_state_of(rejected)
    assert damaged is not None
    spoil(damaged.path / "state.json", "\0" * 64)
    assert alarm.id in world.refused(candidate).hint
    with pytest.raises(IntegrityError, match=f"{damaged.digest.removeprefix('sha256:')}/state.json"):
        acknowledge(world.store, "auto", ["0123456789"], reason="it may be in there")
    (done,) = acknowledge(world.store, "auto", [alarm.id[:6]], reason="a new client asks more")
    assert done.alarm["id"] == alarm.id
    assert world.refused(candidate) is None


def spoil(state: Path, content: str | None) -> None:
    state.parent.chmod(0o700)
    state.unlink()
    if content is not None:
        state.write_text(content)


def test_a_line_state_that_gc_removes_meanwhile_is_not_damaged(
    world: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = world.distilled(world.lived(11, clarified=1.1))
    ids = [alarm.id for alarm in found.alarms]
    world.distilled(world.lived(12))
    acknowledge(world.store, "auto", ids, reason="a new client asks more")
    read = monitor_standing._monitors_in

    def late(*asked: Any) -> Any:
        monkeypatch.undo()
        gc.collect(world.store, 0.0, by="cron")
        return read(*asked)

    assert [one.alarm["id"] for one in standing(world.store.dir, "auto")] == ids
    monkeypatch.setattr(monitor_standing, "_monitors_in", late)
    assert standing(world.store.dir, "auto") == []


def test_a_scratch_store_knows_the_alarms_of_the_one_it_reads_from(world: Line) -> None:
    """They are in objects that it does not have itself."""
    (alarm,) = world.distilled(world.lived(11, clarified=1.1)).alarms
    with passing_scratch(world.store, "test") as scratch:
        assert [one.alarm["id"] for one in standing(scratch.dir, "auto")] == [alarm.id]


def test_who_has_looked_at_a_small_rise_has_not_looked_at_a_large_one(world: Line) -> None:
    (small,) = world.distilled(world.lived(11, clarified=1.1)).alarms
    acknowledge(world.store, "auto", [small.id], reason="a few more, fine")
    large = world.distilled(world.lived(40, clarified=5.0))
    assert {"ask_rate", "edit_rate"} & {alarm.behaviour for alarm in large.alarms}
    assert isinstance(world.refused(world.candidate(large)), GateRejectedError)


def test_a_lasting_shift_is_acknowledged_once(world: Line) -> None:
    """Each cycle adds to the same window: every night's alarm was another one, and no cycle went on."""
    (first,) = world.distilled(night := world.lived(11, clarified=1.3)).alarms
    acknowledge(world.store, "auto", [first.id], reason="a new client asks more")
    night = together(night, world.lived(12, clarified=1.3))
    (second,) = [one for one in world.distilled(night).alarms if one.behaviour == first.behaviour]
    assert second.id != first.id
    assert second.score > first.score, "of more use it is known better"
    found = {one.alarm["id"]: one for one in standing(world.store.dir, "auto")}
    said = found[second.id].acknowledged
    assert said is not None
    assert (said.alarm, said.reason) == (first.id, "a new client asks more")
    candidate = world.candidate(world.distilled(night))
    assert world.refused(candidate) is None
    gc.collect(world.store, 0.0, by="cron")  # the line state that was acknowledged goes
    assert first.id not in {one.alarm["id"] for one in standing(world.store.dir, "auto")}
    assert world.refused(candidate) is None
    (own,) = acknowledge(world.store, "auto", [second.id], reason="still so")
    assert own.alarm["id"] == second.id, "what another one covers can have its own"
    assert acknowledge(world.store, "auto", [second.id], reason="again") == []


def test_what_is_covered_covers_nothing_itself(world: Line) -> None:
    """A quarter more each night: one acknowledgement let a rise go to any height."""
    first = world.distilled(world.lived(11, clarified=1.3))
    (alarm,) = first.alarms
    acknowledge(world.store, "auto", [alarm.id], reason="a few more, fine")
    for night, moved in enumerate((1.2, 1.44, 1.73), 1):
        value = alarm.usual + moved * (alarm.value - alarm.usual)
        worse = msgspec.structs.replace(alarm, id=f"a{night:08d}", at=alarm.at + night, value=value)
        history = msgspec.structs.replace(first.history, alarms=[worse])
        candidate = world.candidate(replace(first, history=history))
        assert (world.refused(candidate) is None) == (night == 1)


@pytest.mark.parametrize(
    ("changed", "covered"),
    [
        ({"value": 0.59}, True),  # 0.49 from usual, where 0.4 was looked at
        ({"value": 0.61}, False),
        ({"usual": 0.02, "value": 0.53}, False),
        ({"direction": "down"}, False),
        ({"behaviour": "edit_rate"}, False),
        ({"checkpoint": "sha256:2"}, False),
        ({"score": 9.0}, True),
    ],
)
def test_what_an_acknowledgement_covers(changed: dict[str, Any], covered: bool) -> None:
    known = {
        "behaviour": "ask_rate", "direction": "up", "checkpoint": "sha256:1", "value": 0.5, "usual": 0.1,
        "score": 4.0,
    }  # fmt: skip
    later = {**known, **changed}
    assert monitor_standing._as_far(later, known) is covered


def test_a_divergence_is_as_far_as_it_is_sure() -> None:
    """Its values are the reward and what users tell, each in its own unit."""
    known = {
        "behaviour": "divergence",
        "direction": "up",
        "checkpoint": "c",
        "value": 1.0,
        "usual": 1.0,
        "score": 4.0,
    }
    assert monitor_standing._as_far({**known, "value": 3.0, "score": 5.0}, known)
    assert not monitor_standing._as_far({**known, "score": 5.1}, known)
    assert not monitor_standing._as_far({**known, "checkpoint": "d"}, known)


def test_an_acknowledgement_is_for_one_line(tmp_path: Path) -> None:
    """A population's line begins on the main one's checkpoint and history: their alarms had one id."""
    world = Line(tmp_path, "[populations.acme]\n")
    acme = world.workspace.on_line("acme")
    assert begin_line(acme, world.store)
    main = world.distilled(world.lived(11, clarified=1.5))
    other = world.distilled(world.lived(11, "acme", clarified=4.0))
    acknowledge(world.store, "auto", [alarm.id for alarm in main.alarms], reason="known there")
    assert all(one.acknowledged is None for one in standing(world.store.dir, "acme"))
    refused = world.refused(world.candidate(other, "acme"), acme, "acme")
    assert isinstance(refused, GateRejectedError)
    assert "`rtrl monitor ack --line acme" in on_line(refused.hint, acme)
    world.close()


def test_an_alarm_of_a_populations_first_checkpoint_can_be_acknowledged(tmp_path: Path) -> None:
    """It is of a checkpoint of the main line: the gate and status found it, `rtrl monitor ack` did not."""
    world = Line(tmp_path, "[populations.acme]\n")
    acme = world.workspace.on_line("acme")
    assert begin_line(acme, world.store)
    alarming = world.lived(11, "acme", clarified=1.1)
    (alarm,) = world.distilled(alarming).alarms
    calm = world.distilled(together(alarming, *(world.lived(at, "acme") for at in range(12, 16))))
    candidate = world.candidate(calm, "acme")
    assert [one.alarm["id"] for one in standing(world.store.dir, "acme")] == [alarm.id]
    assert isinstance(world.refused(candidate, acme, "acme"), GateRejectedError)
    with pytest.raises(InputMissingError):
        acknowledge(world.store, "auto", [alarm.id], reason="it is none of this line's")
    (done,) = acknowledge(world.store, "acme", [alarm.id], reason="they ask more")
    assert done.alarm["id"] == alarm.id
    assert world.refused(candidate, acme, "acme") is None
    world.close()


def test_a_canary_with_an_alarm_is_shown_and_not_promoted(
    world: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked what came up after it was opened: `--promote` and `rtrl ab` gave it to everybody."""
    candidate = world.store.artifact(world.checkpoint(parent=world.live))
    deployment = world.store.deployments.create("auto", candidate.digest, by="test", reason="test")  # type: ignore[union-attr]
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        world.store.deployments.transition(deployment.id, before, after)
    monkeypatch.setattr(run, "require_reachable", lambda *_, **__: None)  # no gateway runs

    def promoted(**flags: Any) -> Any:
        return DeployStage(promote=True, **flags).resolve(world.workspace, world.store, {})["checkpoint"]

    assert promoted() == candidate
    (alarm,) = world.distilled(world.lived(11, clarified=2.0), candidate.digest).alarms  # type: ignore[union-attr]
    assert [one.alarm["id"] for one in standing(world.store.dir, "auto")] == [alarm.id]
    with pytest.raises(GateRejectedError, match=alarm.id):
        promoted()
    assert promoted(override=True, reason="a new client") == candidate
    acknowledge(world.store, "auto", [alarm.id], reason="a new client")
    assert promoted() == candidate


def test_a_rollback_takes_the_price_of_asking_back(world: Line) -> None:
    before = world.live
    state = LineState(stabiliser={"price": 0.9})
    world.promote(world.checkpoint(parent=before, state=state))

    def price() -> Any:
        live = world.store.alias("auto", "live")
        assert live is not None
        return LineState.load(world.store.line_state_of(live.digest).path).stabiliser.get("price")

    assert price() == 0.9
    first = world.store.artifact(before)
    assert first is not None
    run_stage(world.workspace, world.store, RollbackStage(offline=True), [first.ref])
    assert price() is None


class Posts(http.server.BaseHTTPRequestHandler):
    """Puts every post into `taken`: path and document. Answers when `free` is set."""

    taken: queue.Queue[tuple[str, dict[str, Any]]]
    free: threading.Event

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.put((self.path, body))
        self.free.wait(60)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def posts() -> Iterator[tuple[str, type[Posts]]]:
    class Here(Posts):
        taken = queue.Queue()
        free = threading.Event()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Here
    Here.free.set()
    server.shutdown()
    server.server_close()


def test_two_who_tell_at_once_tell_once(
    world: Line, posts: tuple[str, type[Posts]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, hook = posts
    monkeypatch.setenv("RTRL_MONITOR__WEBHOOK", url)
    monkeypatch.setenv("RTRL_MONITOR__TIMEOUT_S", "60")
    (alarm,) = world.distilled(world.lived(11, clarified=2.0)).alarms
    workspace = Workspace.find(world.workspace.root)
    first = threading.Thread(target=lambda: alert.tell(workspace, Store.open(workspace.store_dir)))
    first.start()
    assert hook.taken.get(timeout=60)[1]["alarm"]["id"] == alarm.id  # and is not answered yet
    assert alert.tell(workspace, world.store) == []
    assert hook.taken.empty()
    hook.free.set()
    first.join(60)
    assert alert.tell(workspace, world.store) == []
    assert hook.taken.empty()


@pytest.mark.parametrize(
    ("of", "name", "error"),
    [
        (alert, "standing", sqlite3.OperationalError("database is locked")),
        (locks, "_open", OSError("No space left on device")),
    ],
)
def test_a_registry_that_cannot_be_read_ends_no_cycle_that_would_tell(
    tmp_path: Path,
    posts: tuple[str, type[Posts]],
    monkeypatch: pytest.MonkeyPatch,
    of: Any,
    name: str,
    error: Exception,
) -> None:
    """The distill before it had succeeded, and the cycle ended with it. So it did where the lock of those who
    tell could not be made."""
    url, _ = posts
    world = Line(tmp_path, f'[monitor]\nwebhook = "{url}"\n')
    world.distilled(world.lived(11, clarified=2.0))

    def failing(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(of, name, failing)
        assert alert.tell(world.workspace, world.store) == [f"alarms were not told: {error}"]
    world.close()


def test_a_watch_goes_on_after_a_look_that_failed(world: Line, posts: tuple[str, type[Posts]]) -> None:
    """It ended with 13 while the store was away for a moment, and its pings with it; of a line state that is
    torn with 1."""
    url, hook = posts
    state = world.store.line_state_of(world.live).path / "state.json"
    hook.free.set()
    root, registry = world.workspace.root, world.store.dir / "registry.db"
    command = [sys.executable, "-m", "rtrl_cli.main", "monitor", "--watch", "--every", "1", "-w", str(root)]
    environment = {**os.environ, "RTRL_MONITOR__PING": f"{url}/ping"}
    with processes.Popen(command, env=environment, stdout=subprocess.DEVNULL) as watch:
        try:
            assert hook.taken.get(timeout=60) == ("/ping", {"alarms": [], "looked": True})
            registry.rename(registry.with_name("aside"))
            while hook.taken.get(timeout=60) != ("/ping/fail", {"alarms": [], "looked": False}):
                assert watch.poll() is None
            registry.with_name("aside").rename(registry)
            while hook.taken.get(timeout=60) != ("/ping", {"alarms": [], "looked": True}):
                assert watch.poll() is None
            whole = state.read_bytes()
            spoil(state, "{")
            while hook.taken.get(timeout=60) != ("/ping/fail", {"alarms": [], "looked": False}):
                assert watch.poll() is None
            state.write_bytes(whole)
            while hook.taken.get(timeout=60) != ("/ping", {"alarms": [], "looked": True}):
                assert watch.poll() is None
        finally:
            watch.kill()


def test_a_webhook_that_is_tried_often_is_waited_for_minutes_and_not_for_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait doubled with each try: 20 of them held up a cycle for six days."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("stages.posting.post", lambda *_: (503, ""))
    assert alert.post("http://127.0.0.1:9/x", {}, 1.0, 20) == "http://127.0.0.1 answered 503"
    assert waits[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert len(waits) == 20
    assert sum(waits) < 300
