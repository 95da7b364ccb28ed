from __future__ import annotations

from pathlib import Path

import pytest

from rtrl_cli.commands.status import text
from stages import locks
from stages.registry.glance import glance
from stages.registry.runs import begin_run
from stages.registry.store import Store
from stages.runner import run_stage
from stages.stage import Output
from stages.workspace import Workspace
from tests.stages.toy import Toy, checkpoint


@pytest.mark.parametrize("moved", ["2001-01-01T00:00:00.000000Z", "2101-01-01T00:00:00.000000Z"])
def test_runs_keep_their_order_when_the_clock_was_set(
    moved: str, workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtrl status` did not show what ran since; `train` went on from the line state of an older distill."""
    first = run_stage(workspace, store, Toy("a")).run_id
    with monkeypatch.context() as clock:
        clock.setattr("stages.registry.runs.now", lambda: moved)
        second = run_stage(workspace, store, Toy("a"), force=True).run_id
    third = run_stage(workspace, store, Toy("a"), force=True)
    made = [third.run_id, second, first]
    seen = glance(store.dir)
    assert [run["id"] for run in seen["runs"]] == made
    assert seen["last_of_stage"]["collect"]["id"] == third.run_id
    assert [run.id for run in store.runs("collect")] == made
    assert [run.id for run in store.producers(third.outputs["data"].digest)] == made
    assert run_stage(workspace, store, Toy("a")).run_id == third.run_id


def test_each_line_has_the_last_word_of_its_gate(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    """The newest report of any line was shown, without its line: one that passed hid another's rejections."""
    first = checkpoint(store, tmp_path / "c", "one")
    for line in ("auto", "chat", "chat-b"):
        store.move_alias(line, "live", first.digest, reason="test")
    (tmp_path / "r").mkdir()
    for line, kind, verdict in (
        ("chat", "gate", "pass"),
        ("chat", "gate", "regressed"),
        ("chat", "demo", ""),
        ("auto", "gate", "pass"),
    ):
        made = Output("report", {"report": kind, "verdict": verdict, "of": line})
        (tmp_path / "r" / "f").write_text(f"{line} {kind} {verdict}")
        store.publish_external({"report": (made, tmp_path / "r")}, line=line)
    seen = glance(store.dir)
    told = {one["line"]: (one["report"] or {}).get("verdict") for one in seen["lines"]}
    assert told == {"auto": "pass", "chat": "regressed", "chat-b": None}
    assert (seen["reports"]["gate"]["line"], seen["reports"]["gate"]["ref"]) == ("auto", "report@v4")
    shown = text(
        {"workspace": "w", "serving": None, **seen, "lines": [{**x, "alarms": []} for x in seen["lines"]]}, ()
    )
    rows = [line.split() for line in shown.splitlines()]
    assert [row[-3:-1] for row in rows if row and row[0] == "chat"] == [["report@v2", "regressed"]]
    assert [row[1] for row in rows if row and row[0].startswith("init-")][:2] == ["auto", "chat"]


def test_an_empty_store(store: Store) -> None:
    seen = glance(store.dir)
    assert seen["lines"] == seen["runs"] == seen["running"] == []
    assert seen["artifacts"] == seen["reports"] == seen["last_of_stage"] == {}


def test_what_is_live_what_ran_what_there_is(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    one = checkpoint(store, tmp_path / "c", "one")
    store.move_alias("auto", "anchor", one.digest, reason="init")
    made = store.deployments.create("auto", one.digest, by="me", reason="first", override=True)
    store.deployments.transition(made.id, "staged", "verifying")
    store.move_alias("auto", "live", one.digest, reason="x", deployment_id=made.id)
    run_stage(workspace, store, Toy("a"))
    run_stage(workspace, store, Toy("b", "rejected"))
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "f").write_text("x")
    demo = Output("report", {"report": "demo", "persistence": 0.5})
    store.publish_external({"demo": (demo, tmp_path / "r")}, line="auto", stage="demo")
    with locks.hold(store.run_lock_path("r"), what="run r"):
        begin_run(store, "r", stage="train", line="auto", inputs={}, config={}, extra={}, seed=0)
        seen = glance(store.dir)
    (line,) = seen["lines"]
    assert line["live"]["ref"] == line["anchor"]["ref"] == "checkpoint@v1"
    assert [(d["state"], d["override"], d["reason"]) for d in line["deployments"]] == [
        ("live", True, "first")
    ]
    assert seen["artifacts"]["interactions"]["count"] == 2
    assert seen["artifacts"]["interactions"]["newest"] == "interactions@v2"
    assert [run["stage"] for run in seen["runs"]] == ["train", "demo", "collect", "collect", "init"]
    assert seen["last_of_stage"]["collect"]["state"] == "rejected"
    assert seen["last_of_stage"]["collect"]["metrics"] == {"length": 1}
    assert [(run["id"], run["alive"]) for run in seen["running"]] == [("r", True)]
    assert glance(store.dir)["running"][0]["alive"] is False
    assert seen["reports"]["demo"]["persistence"] == 0.5
    assert seen["reports"]["gate"]["ref"] == "report@v2"
