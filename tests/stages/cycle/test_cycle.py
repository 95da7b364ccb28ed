"""The chain with stages of a few bytes: order, resuming, one at a time, exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from stages.cycle import record
from stages.cycle.deadline import Deadline
from stages.cycle.run import run_cycle
from stages.cycle.stub import StubStage, chain
from stages.cycle_config import STAGES
from stages.errors import (
    DependencyDownError,
    InconclusiveError,
    InputMissingError,
    IntegrityError,
    LockedError,
)
from stages.registry.store import Store
from stages.result import attached_result
from stages.stage import Output
from stages.workspace import Workspace
from tests.locked import held_for_a_moment
from tests.stages.cycle.cycle_world import fail, live, run

SPAWN = multiprocessing.get_context("spawn")


def test_the_chain_once_and_then_nothing_to_do(world: tuple[Workspace, Store]) -> None:
    stages, first = chain(), live(world[1])
    told: list[tuple[str, str]] = []
    result = run(
        world, stages, listener=lambda name, ended: told.append((name, ended.status if ended else "begin"))
    )
    assert (result.status, result.exit_code, result.resumed_at) == ("succeeded", 0, "")
    assert told == [(name, state) for name in STAGES for state in ("begin", "succeeded")]
    candidate = result.envelope()["outputs"]["checkpoint"]["digest"]
    assert live(world[1]) == candidate != first
    envelope = json.loads(json.dumps(result.envelope()))
    assert [stage["command"] for stage in envelope["stages"]] == list(STAGES)
    assert envelope["schema"] == "rtrl/1"
    assert [row["stage"] for row in envelope["metrics"]["deadline"]] == list(STAGES)


def test_each_stage_reads_what_the_cycle_made_whatever_else_is_newer(
    world: tuple[Workspace, Store], tmp_path: Path
) -> None:
    _, store = world
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("somebody else's")
    stages = chain()

    def meanwhile() -> None:
        store.publish_external(
            {"experience": (Output("experience", {}), other)}, line="auto", stage="init", config={}, seed=1
        )

    stages["distill"].before = meanwhile
    result = run(world, stages)
    trained = next(stage for stage in result.stages if stage.command == "train")
    distilled = next(stage for stage in result.stages if stage.command == "distill")
    assert trained.inputs["experience"].digest == distilled.outputs["experience"].digest


@pytest.mark.parametrize(("verdict", "code"), [("rejected", 3), ("inconclusive", 4)])
def test_a_verdict_ends_the_cycle_and_the_data_stays_usable(
    world: tuple[Workspace, Store], verdict: str, code: int
) -> None:
    stages, before = chain(), live(world[1])
    stages["eval"].verdict = verdict  # type: ignore[assignment]
    result = run(world, stages)
    assert (result.status, result.exit_code, result.error) == (verdict, code, None)
    assert stages["deploy"].runs == 0
    assert live(world[1]) == before
    again = run(world, stages)
    assert again.exit_code == code
    assert again.resumed_at == ""
    assert stages["train"].runs == 1, "nothing new: the same verdict by fingerprint"
    stages["collect"].use = 1
    stages["eval"].verdict = "succeeded"
    assert run(world, stages).exit_code == 0
    assert stages["train"].runs == 2
    assert live(world[1]) != before


def serve(store: Store, digest: str) -> str:
    """Deploy as `rtrl deploy` does; the deployment's id."""
    previous = live(store)
    made = store.deployments.create("auto", digest, by="test", reason="test", previous=previous)
    store.deployments.transition(made.id, "staged", "verifying")
    store.move_alias("auto", "live", digest, reason="test", by="test", deployment_id=made.id)
    return made.id


def test_a_candidate_that_was_rolled_back_is_not_deployed_again(world: tuple[Workspace, Store]) -> None:
    _, store = world
    stages, first = chain(), live(store)
    candidate = run(world, stages).made["train"]["checkpoint"]
    store.move_alias("auto", "live", first, reason="test")
    deployment = serve(store, candidate)
    store.deployments.transition(deployment, "live", "rolling_back", rollback_reason="breaks tests")
    back = serve(store, first)
    for _ in range(2):
        result = run(world, stages)
        assert (result.status, result.exit_code) == ("rejected", 3)
        assert result.error is not None
        assert "was rolled back when it was served: breaks tests" in result.error["message"]
        assert "rtrl deploy --input checkpoint@v2" in result.error["hint"]
        assert live(store) == first
    deployment = serve(store, candidate)  # by hand; and what is live is taken back from there
    assert store.deployments.rolled_back("auto", candidate) is None
    assert store.deployments.get(back).state == "retired"
    store.move_alias("auto", "live", first, reason="test")
    assert run(world, stages).exit_code == 0
    assert live(store) == candidate


def test_what_is_down_is_gone_on_with(world: tuple[Workspace, Store]) -> None:
    stages = chain()
    stages["deploy"].before = fail(DependencyDownError("no gateway", hint="rtrl serve"))
    result = run(world, stages)
    assert (result.status, result.exit_code) == ("failed", 13)
    assert result.error is not None
    assert result.error["hint"] == "rtrl serve"
    stages["collect"].use = 1  # more use meanwhile: the cycle that was begun is ended first
    stages["deploy"].before = lambda: None
    resumed = run(world, stages)
    assert (resumed.status, resumed.resumed_at) == ("succeeded", "deploy")
    assert [stage.command for stage in resumed.stages] == ["deploy"]
    assert [stages[name].runs for name in STAGES] == [1, 1, 1, 1, 2]
    assert run(world, stages).resumed_at == ""


def test_a_disk_that_fails_before_a_stage_begins_is_gone_on_with(
    world: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a bug of the program: the next cycle began anew."""
    stages = chain()
    failing = fail(OSError(errno.EIO, "Input/output error", "spool"))
    with monkeypatch.context() as patched:
        patched.setattr(stages["train"], "extra", lambda *_: failing())
        result = run(world, stages)
    assert (result.exit_code, result.error and result.error["message"]) == (13, "spool: Input/output error")
    assert run(world, stages).resumed_at == "train"
    assert stages["collect"].runs == 1


def test_what_would_fail_again_is_begun_anew(world: tuple[Workspace, Store]) -> None:
    stages = chain()
    stages["train"].before = fail(IntegrityError("on-policy proof failed"))
    assert run(world, stages).exit_code == 12
    stages["train"].before = lambda: None
    stages["collect"].use = 1
    assert run(world, stages).resumed_at == ""
    assert stages["collect"].runs == 2


def test_too_little_use_is_inconclusive(world: tuple[Workspace, Store]) -> None:
    stages = chain()
    stages["collect"].before = fail(InconclusiveError("3 episodes are ready, 100 are wanted"))
    result = run(world, stages)
    assert (result.status, result.exit_code) == ("inconclusive", 4)
    assert result.stages[0].error is not None


def test_fresh_forgets_the_interrupted_cycle(world: tuple[Workspace, Store]) -> None:
    stages = chain()
    stages["deploy"].before = fail(DependencyDownError("no gateway"))
    run(world, stages)
    stages["deploy"].before = lambda: None
    result = run(world, stages, fresh=True)
    assert result.resumed_at == ""
    assert result.stages[0].status == "noop"


def test_an_interrupted_cycle_does_not_outlive_its_live_checkpoint(
    world: tuple[Workspace, Store], tmp_path: Path
) -> None:
    workspace, store = world
    stages = chain()
    stages["eval"].before = fail(DependencyDownError("engine died"))
    run(world, stages)
    assert record.interrupted(workspace.run_dir, "auto", store) is not None
    other = tmp_path / "other"
    other.mkdir()
    (other / "weights").write_text("deployed by hand")
    hand = store.publish_external(
        {"checkpoint": (Output("checkpoint", {"parent": None}), other)},
        line="auto",
        stage="init",
        config={},
        seed=2,
    )["checkpoint"]
    store.move_alias("auto", "live", hand.digest, reason="by hand")
    assert record.interrupted(workspace.run_dir, "auto", store) is None


def test_a_cycle_whose_candidate_went_out_by_hand_is_over(world: tuple[Workspace, Store]) -> None:
    """It was compared with itself for an hour. A deploy that was cut short is another matter."""
    workspace, store = world
    stages = chain()
    stages["eval"].before = fail(DependencyDownError("engine died"))
    candidate = run(world, stages).made["train"]["checkpoint"]
    store.move_alias("auto", "live", candidate, reason="by hand")
    assert record.interrupted(workspace.run_dir, "auto", store) is None
    late = record.read(workspace.run_dir, "auto")
    assert late is not None
    late.done["eval"] = {}
    late.save(workspace.run_dir)
    assert record.interrupted(workspace.run_dir, "auto", store) == late


def test_a_cycle_that_was_killed_when_all_was_done_holds_no_other_up(world: tuple[Workspace, Store]) -> None:
    run(world, chain())
    done = record.read(world[0].run_dir, "auto")
    assert done is not None
    done.status = "running"  # as the last stage left it
    done.save(world[0].run_dir)
    stages = chain()
    stages["collect"].use = 1
    assert run(world, stages).status == "succeeded"
    assert stages["deploy"].runs == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "rtrl-cycle/1", "id":',
        "null",
        '{"schema": "rtrl-cycle/1", "id": "c", "line": "a", "live": "", "started_at": "", "done": {"x": 3}}',
        '{"schema": "rtrl-cycle/1", "id": 1, "line": "auto", "live": "", "started_at": ""}',
    ],
)  # fmt: skip
def test_a_torn_record_is_no_record(world: tuple[Workspace, Store], text: str) -> None:
    workspace, store = world
    (workspace.run_dir / "cycle-auto.json").write_text(text)
    assert record.interrupted(workspace.run_dir, "auto", store) is None
    assert run(world, chain()).exit_code == 0


def _killed_in_train(root: str) -> None:
    workspace = Workspace.find(Path(root))
    stages = chain()
    stages["train"].before = lambda: os.kill(os.getpid(), signal.SIGKILL)
    run_cycle(workspace, Store.open(workspace.store_dir), stages=stages)


def test_a_killed_cycle_goes_on_where_it_was(world: tuple[Workspace, Store]) -> None:
    process = SPAWN.Process(target=_killed_in_train, args=(str(world[0].root),))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    stages = chain()
    result = run(world, stages)
    assert (result.exit_code, result.resumed_at) == (0, "train")
    assert [stages[name].runs for name in STAGES] == [0, 0, 1, 1, 1]


def _slow(root: str, ready: multiprocessing.synchronize.Event) -> None:
    def wait() -> None:
        ready.set()
        time.sleep(60)

    workspace = Workspace.find(Path(root))
    stages = chain()
    stages["collect"].before = wait
    run_cycle(workspace, Store.open(workspace.store_dir), stages=stages)


def test_the_second_cycle_names_the_first(world: tuple[Workspace, Store]) -> None:
    ready = SPAWN.Event()
    process = SPAWN.Process(target=_slow, args=(str(world[0].root), ready))
    process.start()
    try:
        assert ready.wait(60)
        with pytest.raises(LockedError, match=rf"cycle-.* \(pid {process.pid} on ") as caught:
            run(world, chain())
        assert caught.value.code == 11
    finally:
        process.kill()
        process.join()
    assert run(world, chain()).exit_code == 0, "the kernel frees the dead one's lock"


def _locked_during(stack: contextlib.ExitStack, stage: StubStage, lock: Path) -> None:
    """Somebody takes the lock of a later stage while this one works, and keeps it for two seconds."""
    stage.before = lambda: stack.enter_context(held_for_a_moment(lock, 2))


@pytest.mark.parametrize(("lock_timeout", "code"), [(0.0, 11), (60.0, 0)])
def test_it_waits_for_the_stages_locks_as_long_as_for_its_own(
    world: tuple[Workspace, Store], lock_timeout: float, code: int
) -> None:
    """It waited for none of them, and advised the flag that was given."""
    stages = chain()
    with contextlib.ExitStack() as stack:
        _locked_during(stack, stages["distill"], world[1].lock_path("train-auto"))
        assert run(world, stages, lock_timeout=lock_timeout).exit_code == code


def test_it_waits_for_no_lock_longer_than_the_stage_has_time(
    world: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deploy is not interrupted when it is late, so its wait has an end of its own."""
    stages = chain()
    monkeypatch.setattr(Deadline, "left", lambda _, stage: 0.1 if stage == "deploy" else 3600.0)
    with contextlib.ExitStack() as stack:
        _locked_during(stack, stages["eval"], world[1].lock_path("target-auto"))
        assert run(world, stages, lock_timeout=60.0).exit_code == 11
    assert stages["deploy"].runs == 0


def test_nothing_live(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    with pytest.raises(InputMissingError, match="no live checkpoint") as caught:
        run_cycle(workspace, Store.open(workspace.store_dir), stages=chain())
    # without PATH it would make another workspace, in the current folder; `rtrl init` alone is refused
    assert "rtrl init PATH --model FOLDER" in caught.value.hint


def test_a_signal_ends_the_cycle_with_its_own_document(world: tuple[Workspace, Store]) -> None:
    stages = chain()
    stages["train"].before = fail(SystemExit(130))
    with pytest.raises(SystemExit) as caught:
        run(world, stages)
    result = attached_result(caught.value)
    assert result is not None
    document = result.envelope()
    assert (document["command"], document["status"], document["error"]["code"]) == ("cycle", "failed", 130)
    assert [(stage["command"], stage["status"]) for stage in document["stages"]] == [
        ("collect", "succeeded"),
        ("distill", "succeeded"),
        ("train", "failed"),
    ]
