"""Alarms in a line's state: they block the gate, are acknowledged, go with a rollback, are told once."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from rtrl_cli.app import app
from stages.cycle.ping import ping
from stages.deploy.run import DeployStage
from stages.errors import GateRejectedError, InputMissingError, UsageError
from stages.eval.run import EvalStage
from stages.linestate import LineState
from stages.monitor import alert
from stages.monitor.behaviours import possible
from stages.monitor.charts import update
from stages.monitor.gate import acknowledge, alarmed
from stages.monitor.history import History
from stages.monitor.standing import acknowledged, standing
from stages.who import who
from stages.workspace import Workspace
from tests.stages.monitor.cycles import made
from tests.stages.world import World


@pytest.fixture(scope="module")
def alarming() -> History:
    """Twelve cycles; in the last questions take over."""
    random, history = np.random.default_rng(3), History()
    for at in range(12):
        moved = {"clarified": 2.0} if at == 11 else {}
        history = update(history, made(at * 3_600_000, random, **moved)).history
    assert [alarm.behaviour for alarm in history.alarms] == ["ask_rate"]
    return history


@pytest.fixture
def world(tmp_path: Path, alarming: History) -> Iterator[World]:
    """What is live is as ever; its child was trained on what alarmed."""
    made_ = World(tmp_path)
    state = LineState(monitors=alarming.to_state())
    made_.child = made_.checkpoint(parent=made_.live, state=state)  # type: ignore[attr-defined]
    yield made_
    made_.close()


def child(world: World) -> Any:
    return world.store.artifact(world.child)  # type: ignore[attr-defined]


def live(world: World) -> Any:
    return world.store.alias("auto", "live")


def test_an_alarm_blocks_until_it_is_acknowledged(world: World, alarming: History) -> None:
    (alarm,) = alarming.alarms
    refused = alarmed(world.workspace, world.store, child(world), live(world))
    assert isinstance(refused, GateRejectedError)
    assert refused.code == 3
    assert "ask_rate rose to" in refused.message
    assert f"rtrl monitor ack {alarm.id} --reason" in refused.hint
    for stage in (EvalStage(), DeployStage()):
        with pytest.raises(GateRejectedError):
            stage.resolve(world.workspace, world.store, {"checkpoint": child(world).ref})
    past = DeployStage(override=True, reason="the cause is known", offline=True)
    assert past.resolve(world.workspace, world.store, {"checkpoint": child(world).ref})[
        "checkpoint"
    ] == child(world)
    (tried,) = acknowledge(world.store, "auto", [alarm.id], reason="to see", dry_run=True)
    assert (tried.alarm["id"], acknowledged(world.store.dir)) == (alarm.id, set())
    (done,) = acknowledge(world.store, "auto", [alarm.id[:4]], reason="a new client asks more", by="ada")
    assert acknowledged(world.store.dir) == {alarm.id}
    assert done.alarm["id"] == alarm.id
    assert alarmed(world.workspace, world.store, child(world), live(world)) is None
    assert acknowledge(world.store, "auto", [alarm.id], reason="again") == []
    (one,) = standing(world.store.dir, "auto", [child(world).digest])
    assert one.acknowledged is not None
    assert (one.acknowledged.by, one.acknowledged.reason) == ("ada", "a new client asks more")


def test_what_is_live_is_no_candidate_and_a_rollback_takes_the_alarm_back(world: World) -> None:
    assert standing(world.store.dir, "auto") == []
    before = live(world)
    world.promote(child(world).digest)
    assert len(standing(world.store.dir, "auto")) == 1
    assert alarmed(world.workspace, world.store, child(world), live(world)) is None
    world.promote(before.digest)
    assert standing(world.store.dir, "auto") == []


def test_an_acknowledgement_wants_a_reason_and_an_alarm(world: World, alarming: History) -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        acknowledge(world.store, "auto", [alarming.alarms[0].id], reason=" ")
    for name in ("zzz", ""):  # a script's variable that is not set acknowledges nothing
        with pytest.raises(InputMissingError, match="no alarm") as missing:
            acknowledge(world.store, "auto", [name], reason="x")
        assert missing.value.hint == "`rtrl monitor` lists them"
    with pytest.raises(InputMissingError, match="line chat has no alarm") as caught:
        acknowledge(world.store, "chat", [alarming.alarms[0].id], reason="x")
    assert caught.value.hint == "line auto has one: give --line auto"
    acknowledge(world.store, "auto", [alarming.alarms[0].id], reason="x")
    (one,) = standing(world.store.dir, "auto", [child(world).digest])
    assert one.acknowledged is not None
    assert one.acknowledged.by == who()


def test_blocking_can_be_switched_off(tmp_path: Path, alarming: History) -> None:
    world = World(tmp_path, "[monitor]\nblock = false\n")
    digest = world.checkpoint(parent=world.live, state=LineState(monitors=alarming.to_state()))
    assert alarmed(world.workspace, world.store, world.store.artifact(digest), live(world)) is None  # type: ignore[arg-type]
    world.close()


def run(world: World, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "-w", str(world.workspace.root)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_shows_acknowledges_and_draws(world: World, alarming: History, tmp_path: Path) -> None:
    assert "no cycle was distilled" in run(world, "monitor")
    world.promote(child(world).digest)
    shown = run(world, "monitor", "--plot", str(tmp_path / "charts.png"))
    assert (tmp_path / "charts.png").stat().st_size > 10_000
    (row,) = [line for line in shown.splitlines() if line.startswith("ask_rate")]
    assert "▁" in row
    assert "↑" in row
    assert f"ALARM {alarming.alarms[0].id}" in shown
    assert f"ALARM {alarming.alarms[0].id}" in run(world, "status")
    assert "(`rtrl monitor`)" in run(world, "status")
    world.store.move_alias("chat", "live", world.child, reason="test")  # type: ignore[attr-defined]
    assert "(`rtrl monitor --line auto`)" in run(world, "status")
    found = json.loads(run(world, "monitor", "--json"))["metrics"]
    assert found["windows"] == 12
    assert found["alarms"][0]["acknowledged"] is None
    assert found["charts"]["ask_rate"]["points"][-1]["alarm"] == "up"
    told = run(world, "monitor", "ack", alarming.alarms[0].id, "--reason", "seen")
    assert told.startswith(f"acknowledged {alarming.alarms[0].id}")
    assert "acknowledged by" in run(world, "monitor")
    assert "ALARM" not in run(world, "status")


class Hook(http.server.BaseHTTPRequestHandler):
    """Answers 503 to the first post, then takes all."""

    taken: ClassVar[list[dict[str, Any]]] = []
    posts = 0

    def do_POST(self) -> None:
        Hook.posts += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Hook.posts > 1:
            Hook.taken.append(body)
        self.send_response(200 if Hook.posts > 1 else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_webhook_is_told_once_and_tried_again(
    world: World, alarming: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert, "_WAIT_S", 0.01)
    world.promote(child(world).digest)
    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/secret-path"
    monkeypatch.setenv("RTRL_MONITOR__WEBHOOK", url)
    monkeypatch.setenv("RTRL_MONITOR__TIMEOUT_S", "60")  # one that was taken late would be told once more
    workspace = Workspace.find(world.workspace.root)
    assert "secret-path" not in repr(workspace.settings)
    assert alert.tell(workspace, world.store) == []
    assert alert.tell(workspace, world.store) == []
    server.shutdown()
    server.server_close()
    (one,) = standing(world.store.dir, "auto")
    assert (one.told, one.acknowledged, acknowledged(world.store.dir)) == (True, None, set())
    (body,) = Hook.taken
    assert Hook.posts == 2
    assert (body["kind"], body["line"], body["alarm"]["id"]) == ("rtrl.alarm", "auto", alarming.alarms[0].id)


def test_a_webhook_that_is_away_costs_a_warning_without_its_path(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert, "_WAIT_S", 0.01)
    monkeypatch.setenv("RTRL_MONITOR__WEBHOOK", "http://127.0.0.1:9/secret-path")
    world.promote(child(world).digest)
    (warning,) = alert.tell(Workspace.find(world.workspace.root), world.store)
    assert "http://127.0.0.1: ConnectError" in warning
    assert "secret-path" not in warning


class Dripping(http.server.BaseHTTPRequestHandler):
    """An answer without an end, a byte at a time; `/body` after its head, else within it."""

    over: ClassVar[threading.Event] = threading.Event()

    def do_POST(self) -> None:
        self.send_response(200)
        if self.path == "/body":
            self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"X-More: " if self.path != "/body" else b"x")
            while not Dripping.over.wait(0.05):
                self.wfile.write(b"x")

    def log_message(self, *_: object) -> None:
        pass


def test_an_answer_that_drips_is_not_waited_for() -> None:
    """Each byte began the time-out anew: `rtrl distill` and `rtrl cycle` hung behind a webhook or a ping."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        assert alert.post(f"{url}/body", {}, 60, 0) == "", "it was taken; nobody reads what follows"
        assert alert.post(f"{url}/head", {}, 0.5, 0) == "http://127.0.0.1: TimeoutError"
        assert ping(f"{url}/head", "fail", {}, 0.5) == "ping of http://127.0.0.1 failed: TimeoutError"
    finally:
        Dripping.over.set()
        server.shutdown()
        server.server_close()


def test_a_populations_line_is_looked_at_and_acknowledged_by_its_name(
    tmp_path: Path, alarming: History
) -> None:
    world = World(tmp_path, "[populations.acme]\n")
    acme = world.workspace.on_line("acme")
    state = LineState(monitors=alarming.to_state())
    digest = world.checkpoint(parent=world.live, state=state, line="acme")
    world.store.move_alias("acme", "live", digest, reason="test")
    (alarm,) = alarming.alarms
    refused = alarmed(acme, world.store, world.store.artifact(world.live), world.store.alias("acme", "live"))
    assert refused is not None
    assert f"rtrl monitor ack {alarm.id} --reason" in refused.hint
    assert "no cycle was distilled" in run(world, "monitor")
    shown = run(world, "monitor", "--line", "acme")
    assert f"`rtrl monitor ack --line acme {alarm.id} --reason ...`" in shown
    run(world, "monitor", "ack", alarm.id, "--line", "acme", "--reason", "seen")
    assert "acknowledged by" in run(world, "monitor", "--line", "acme")
    refused_name = CliRunner().invoke(app, ["monitor", "--line", "acne", "-w", str(world.workspace.root)])
    assert isinstance(refused_name.exception, InputMissingError)
    assert refused_name.exception.hint == "did you mean 'acme'? lines here: acme, auto"
    world.close()


def test_a_share_is_never_shown_below_nothing() -> None:
    assert [possible("ask_rate", value) for value in (-0.1, 0.2, 1.3)] == [0.0, 0.2, 1.0]
    assert [possible("output_tokens", value) for value in (-1.0, 2.5)] == [0.0, 2.5]


def test_options_before_ack_are_not_dropped(world: World, alarming: History) -> None:
    """They were the look's, and `ack` went by the current folder."""
    place = ["-w", str(world.workspace.root)]
    done = CliRunner().invoke(app, ["monitor", *place, "ack", alarming.alarms[0].id, "--reason", "x"])
    assert isinstance(done.exception, UsageError)
    assert "stands before ack" in str(done.exception)
