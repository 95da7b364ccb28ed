from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stages.errors import (
    GateRejectedError,
    InconclusiveError,
    InputMissingError,
    IntegrityError,
    RtrlError,
    UsageError,
)
from stages.registry import states
from stages.registry.store import Store
from stages.result import result_of
from stages.runner import run_stage
from stages.stage import Output
from stages.workspace import Workspace
from tests.stages.signalled import heard, ring
from tests.stages.toy import Toy, checkpoint


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w", "[workspace]\nseed = 7\n")


@pytest.fixture
def store(workspace: Workspace) -> Store:
    return Store.open(workspace.store_dir)


def log_of(store: Store, run_id: str | None) -> Iterator[dict[str, Any]]:
    for line in (store.dir / "logs" / f"{run_id}.jsonl").read_text().splitlines():
        yield json.loads(line)


def test_the_envelope(workspace: Workspace, store: Store) -> None:
    result = run_stage(workspace, store, Toy())
    data, report = result.outputs["data"], result.outputs["report"]
    found = result.envelope()
    assert found.pop("duration_s") > 0
    assert found == {
        "schema": "rtrl/1",
        "command": "collect",
        "status": "succeeded",
        "run_id": result.run_id,
        "inputs": {},
        "outputs": {
            "data": {"ref": "interactions@v1", "digest": data.digest, "bytes": 11},
            "report": {"ref": "report@v1", "digest": report.digest, "bytes": 13},
        },
        "metrics": {"length": 5},
        "warnings": [],
        "error": None,
    }
    assert (data.path / "seed.txt").read_text() == "7"
    assert [line["event"] for line in log_of(store, result.run_id)] == ["run.begin", "run.end"]


def test_the_same_again_is_a_no_op_that_says_so(workspace: Workspace, store: Store) -> None:
    stage = Toy()
    first, second = run_stage(workspace, store, stage), run_stage(workspace, store, stage)
    assert (second.status, second.exit_code, stage.runs) == ("noop", 0, 1)
    assert second.run_id == first.run_id
    assert second.outputs == first.outputs
    assert second.notes == [f"nothing to do: {first.run_id} did this already (--force repeats it)"]


@pytest.mark.parametrize("change", ["seed", "setting", "extra", "input", "force"])
def test_whatever_decides_the_result_makes_another_run(
    workspace: Workspace, store: Store, change: str, tmp_path: Path
) -> None:
    stage = Toy()
    run_stage(workspace, store, stage)
    if change == "extra":
        stage.text = "other"
    if change == "input":
        stage.inputs = {"checkpoint": checkpoint(store, tmp_path / "c", "x")}
    result = run_stage(
        workspace,
        store,
        stage,
        seed=8 if change == "seed" else None,
        overrides=["collect.max_lag=3"] if change == "setting" else (),
        force=change == "force",
    )
    assert (result.status, stage.runs) == ("succeeded", 2)


@pytest.mark.parametrize(("status", "code"), [("rejected", 3), ("inconclusive", 4)])
def test_a_verdict_publishes_and_is_told_again(
    workspace: Workspace, store: Store, status: str, code: int
) -> None:
    stage = Toy(status=status)
    first, second = run_stage(workspace, store, stage), run_stage(workspace, store, stage)
    for result in (first, second):
        assert (result.status, result.exit_code) == (status, code)
        assert result.outputs["report"].ref == "report@v1"
        assert result.warnings == [f"{status} for a reason"]
    assert stage.runs == 1
    assert store.run(first.run_id or "").state == status


def test_a_failure_is_kept_and_named(workspace: Workspace, store: Store) -> None:
    error = UsageError("no good", hint="try another")
    with pytest.raises(UsageError) as caught:
        run_stage(workspace, store, Toy(error=error))
    result = result_of(caught.value)
    assert result is not None
    assert (result.status, result.exit_code) == ("failed", 2)
    assert result.envelope()["error"] == {
        "code": 2,
        "kind": "usage",
        "message": "no good",
        "hint": "try another",
    }
    row = store.run(result.run_id or "")
    assert row.state == "failed"
    assert json.loads(row.error or "")["message"] == "no good"
    (failed,) = [line for line in log_of(store, row.id) if line["event"] == "run.error"]
    assert "Traceback" in failed["traceback"]
    assert list((store.dir / "tmp").iterdir()) == []
    assert store.latest("report") is None


def test_a_bug_is_a_failure_with_its_own_traceback(workspace: Workspace, store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        run_stage(workspace, store, Toy(error=ZeroDivisionError("x")))
    (row,) = store.runs()
    assert json.loads(row.error or "")["code"] == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupted_run_is_cancelled(workspace: Workspace, store: Store, error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_stage(workspace, store, Toy(error=error))
    assert [run.state for run in store.runs()] == ["cancelled"]


def _wrapped() -> None:
    try:
        ring()
    except SystemExit as error:
        raise RuntimeError("a library's own") from error


def _kept() -> None:
    with contextlib.suppress(SystemExit):
        ring()


@pytest.mark.parametrize("met", [_wrapped, _kept])
def test_a_run_whose_signal_a_library_keeps_is_cancelled(
    workspace: Workspace, store: Store, met: Callable[[], None]
) -> None:
    with heard(), pytest.raises(SystemExit) as caught:
        run_stage(workspace, store, Toy(during=lambda _ctx: met()))
    assert caught.value.code == 143
    assert [run.state for run in store.runs()] == ["cancelled"]
    assert store.latest("report") is None


def test_scratch_outlives_a_failure_and_not_a_success(workspace: Workspace, store: Store) -> None:
    stage = Toy(error=UsageError("once"))
    with pytest.raises(UsageError):
        run_stage(workspace, store, stage)
    (scratch,) = (store.dir / "scratch").iterdir()
    assert (scratch / "seen").exists()
    stage.error = None
    seen: list[bool] = []
    stage.during = lambda ctx: seen.append(ctx.scratch == scratch)
    run_stage(workspace, store, stage)
    assert seen == [True]
    assert list((store.dir / "scratch").iterdir()) == []


def test_dry_run_changes_nothing(workspace: Workspace, store: Store) -> None:
    class Planner(Toy):
        def plan(self, config, inputs, extra, ctx):  # type: ignore[no-untyped-def]
            return {"letters": len(extra["text"])}

    stage = Planner()
    result = run_stage(workspace, store, stage, dry_run=True, seed=3)
    assert (result.status, stage.runs, store.runs()) == ("noop", 0, [])
    assert result.metrics["would_run"] is True
    assert (result.metrics["seed"], result.metrics["extra"]) == (3, {"text": "hello"})
    assert result.metrics["plan"] == {"letters": 5}
    run_stage(workspace, store, stage, seed=3)
    assert run_stage(workspace, store, stage, dry_run=True, seed=3).metrics["would_run"] is False


def test_inputs_are_named_by_reference(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    made = checkpoint(store, tmp_path / "c", "x")
    result = run_stage(workspace, store, Toy(), [made.digest[:20]])
    assert result.envelope()["inputs"] == {"checkpoint": "checkpoint@v1"}
    assert [one.ref for one in store.inputs_of(result.run_id or "")] == ["checkpoint@v1"]
    with pytest.raises(InputMissingError):
        run_stage(workspace, store, Toy(), ["checkpoint@v9"])
    with pytest.raises(UsageError, match="two of kind checkpoint"):
        run_stage(workspace, store, Toy(), ["checkpoint@v1", made.digest])


def test_a_recorded_run_is_repeated_elsewhere(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    """Same inputs, settings, seed and aliases as then, though all of them have changed since."""
    one = checkpoint(store, tmp_path / "c", "one")
    store.move_alias("auto", "live", one.digest, reason="init")
    first = run_stage(workspace, store, Toy("then"), [one.digest], ["collect.max_lag=5"], seed=11)
    two = checkpoint(store, tmp_path / "c", "two", one.digest)
    store.move_alias("auto", "live", two.digest, reason="later")
    before = sorted(path for path in store.dir.rglob("*") if path.is_file())
    seen: dict[str, Any] = {}

    def look(ctx: Any) -> None:
        seen.update(live=ctx.store.resolve("checkpoint@live").ref, seed=ctx.seed, dir=ctx.store.dir)

    repeated = run_stage(workspace, store, Toy("now", during=look), from_run=first.run_id)
    assert repeated.outputs["data"].digest == first.outputs["data"].digest
    assert (seen["live"], seen["seed"]) == ("checkpoint@v1", 11)
    assert seen["dir"].parent == workspace.root / "debug"
    assert sorted(path for path in store.dir.rglob("*") if path.is_file()) == before
    scratch = Store.open(seen["dir"])
    assert scratch.run(repeated.run_id or "").from_run == first.run_id
    assert json.loads(scratch.run(repeated.run_id or "").config)["max_lag"] == 5
    assert scratch.resolve("checkpoint@v2").path == two.path, "reads the original's objects"


def test_what_was_deployed_since_is_not_there_in_a_repeated_run_though_the_clock_was_set_back(
    workspace: Workspace, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (checkpoint(store, tmp_path / "c", text) for text in ("one", "two"))
    store.move_alias("auto", "live", one.digest, reason="init")
    first = run_stage(workspace, store, Toy())
    monkeypatch.setattr(states, "now", lambda: "2020-01-01T00:00:00.000000Z")
    store.move_alias("auto", "live", two.digest, reason="later")
    monkeypatch.undo()
    seen: list[str] = []
    toy = Toy(during=lambda ctx: seen.append(ctx.store.resolve("checkpoint@live").ref))
    run_stage(workspace, store, toy, from_run=first.run_id)
    assert (seen, store.resolve("checkpoint@live").ref) == (["checkpoint@v1"], "checkpoint@v2")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GateRejectedError("worse"), "rejected"),
        (InconclusiveError("too little use"), "inconclusive"),
        (IntegrityError("damaged"), "failed"),
    ],
)
def test_an_error_has_the_status_of_its_exit_code_and_is_tried_again(
    workspace: Workspace, store: Store, error: RtrlError, status: str
) -> None:
    toy = Toy(error=error)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            run_stage(workspace, store, toy)
        result = result_of(caught.value)
        assert result is not None
        assert (result.envelope()["status"], result.exit_code) == (status, error.code)
        assert store.run(result.run_id or "").state == status
    assert toy.runs == 2, "it came to no result: the same run again is no noop"


def test_repeating_a_run_can_be_planned_and_not_changed(
    workspace: Workspace, store: Store, tmp_path: Path
) -> None:
    first = run_stage(workspace, store, Toy("then"), seed=11)
    toy = Toy("now")
    planned = run_stage(workspace, store, toy, from_run=first.run_id, dry_run=True)
    assert (planned.status, planned.metrics["seed"], planned.metrics["extra"]) == (
        "noop",
        11,
        {"text": "then"},
    )
    assert planned.notes == [f"would repeat {first.run_id}"]
    assert (toy.runs, (workspace.root / "debug").exists()) == (0, False)
    one = checkpoint(store, tmp_path / "c", "one")
    other: list[tuple[str, dict[str, Any]]] = [
        ("--set", {"overrides": ["collect.max_lag=5"]}),
        ("--seed", {"seed": 0}),
        ("--input", {"refs": [one.digest]}),
        ("--force", {"force": True}),
    ]
    for flag, options in other:
        with pytest.raises(UsageError, match=f"; {flag} would make it another") as caught:
            run_stage(workspace, store, toy, from_run=first.run_id, **options)
        assert caught.value.code == 2
    assert toy.runs == 0


def test_only_a_run_of_the_same_stage_is_repeated(workspace: Workspace, store: Store, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "f").write_text("x")
    made = store.publish_external({"x": (Output("report", {}), tmp_path / "c")}, line="auto")["x"]
    with pytest.raises(UsageError, match="is a run of init") as caught:
        run_stage(workspace, store, Toy(), from_run=made.run_id)
    assert caught.value.hint == "of collect, distill, train, eval, deploy, rollback runs can be"
    other = store.publish_external(
        {"x": (Output("report", {"n": 2}), tmp_path / "c")}, line="auto", stage="eval"
    )
    with pytest.raises(UsageError, match="is a run of eval") as caught:
        run_stage(workspace, store, Toy(), from_run=other["x"].run_id)
    assert caught.value.hint == f"`rtrl eval --from-run {other['x'].run_id}`"
    with pytest.raises(InputMissingError):
        run_stage(workspace, store, Toy(), from_run="collect-nowhere")


def test_a_run_of_an_older_version_is_repeated_or_told_why_not(
    workspace: Workspace, store: Store, tmp_path: Path
) -> None:
    """Settings that are refused by now, and an experience with the columns of then: no bug, no damage."""
    first = run_stage(workspace, store, Toy())
    with closing(sqlite3.connect(store.dir / "registry.db")) as registry, registry:
        registry.execute("UPDATE run SET config = ?", (json.dumps({"grace_s": 2e9, "gone": 1}),))
    with pytest.raises(UsageError, match=r"that this version does not take: collect\.grace_s: ") as caught:
        run_stage(workspace, store, Toy(), from_run=first.run_id)
    assert caught.value.hint == "the version that made it repeats it"
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "f").write_text("x")
    meta = {"schema": "rtrl-experience/1", "interactions": [first.outputs["data"].digest]}
    old = store.publish_external({"x": (Output("experience", meta), tmp_path / "e")}, line="auto")["x"]
    taken = run_stage(workspace, store, Toy("taken", inputs={"experience": old}))
    with pytest.raises(InputMissingError, match="was distilled by another version") as missing:
        run_stage(workspace, store, Toy("taken"), from_run=taken.run_id)
    assert missing.value.hint == "distill it again: rtrl distill --input interactions@v1"


def test_deploy_and_rollback_have_one_lock_and_no_fingerprint(workspace: Workspace, store: Store) -> None:
    class Deploy(Toy):
        name = "deploy"

    class Rollback(Toy):
        name = "rollback"

    locks: list[str] = []
    for stage in (Deploy(), Rollback(), Deploy()):
        stage.during = lambda ctx: locks.append(ctx.store.run(ctx.run_id).lock)
        assert run_stage(workspace, store, stage).status == "succeeded"
        assert stage.runs == 1
    assert locks == ["target-auto"] * 3
    assert {run.fingerprint for run in store.runs()} == {""}


def test_what_a_bug_quotes_is_redacted_in_log_registry_and_result(workspace: Workspace, store: Store) -> None:
    with pytest.raises(ValueError, match="alice") as caught:
        run_stage(workspace, store, Toy(error=ValueError("bad line 'mail alice@corp.io'")))
    result = result_of(caught.value)
    assert result is not None
    assert result.run_id is not None
    error = store.run(result.run_id).error
    log = (store.dir / "logs" / f"{result.run_id}.jsonl").read_text()
    for text in (str(result.envelope()), str(error), log):
        assert "alice" not in text
        assert "bad line 'mail [redacted:email]'" in text
