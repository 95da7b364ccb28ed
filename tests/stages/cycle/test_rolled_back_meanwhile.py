"""A rollback while a cycle runs holds: no child of what was taken away goes out by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.cycle.result import CycleResult
from stages.cycle.stub import chain
from stages.cycle_config import STAGES
from stages.registry.store import Store
from stages.result import StageResult
from stages.stage import Artifact, Output
from stages.workspace import Workspace
from tests.stages.cycle.cycle_world import live, run

WHY = "answers leak customer names"


def child(store: Store, folder: Path, of: str) -> Artifact:
    folder.mkdir()
    (folder / "weights").write_text(f"{folder.name} of {of}")
    outputs = {"checkpoint": (Output("checkpoint", {"parent": of}), folder)}
    return store.publish_external(outputs, line="auto", stage="init", config={}, seed=0)["checkpoint"]


def serve(store: Store, digest: str) -> None:
    """Deploy as `rtrl deploy` does."""
    previous, deployments = live(store), store.deployments
    made = deployments.create("auto", digest, by="test", reason="test", previous=previous)
    deployments.transition(made.id, "staged", "verifying")
    store.move_alias("auto", "live", digest, reason="test", by="test", deployment_id=made.id)


def roll_back(store: Store) -> None:
    """Go back as `rtrl rollback` does."""
    was = store.deployments.current("auto")
    assert was is not None
    assert was.previous is not None
    store.deployments.transition(was.id, "live", "rolling_back", rollback_reason=WHY)
    serve(store, was.previous)


def cycle_with(world: tuple[Workspace, Store], at: str, *, after: bool = False) -> CycleResult:
    """A cycle from a second checkpoint, which is rolled back within (or after) one of the stages."""
    store, stages = world[1], chain()
    serve(store, child(store, world[0].root.parent / "second", live(store)).digest)

    def told(name: str, ended: StageResult | None) -> None:
        if after and name == at and ended is not None:
            roll_back(store)

    if not after:
        stages[at].before = lambda: roll_back(store)
    result = run(world, stages, listener=told)
    assert stages["deploy"].runs == 0
    return result


@pytest.mark.parametrize(
    ("at", "after"), [("collect", False), ("train", False), ("eval", False), ("train", True), ("eval", True)]
)
def test_a_rollback_while_a_cycle_runs_holds(world: tuple[Workspace, Store], at: str, after: bool) -> None:
    _, store = world
    first = live(store)
    result = cycle_with(world, at, after=after)
    assert (result.status, result.exit_code) == ("rejected", 3)
    assert result.error is not None
    began = f"checkpoint@v2, which this cycle began from, was rolled back: {WHY}"
    assert (result.error["message"], live(store)) == (began, first)
    assert [each.command for each in result.stages[:-1]] == list(STAGES[: STAGES.index(at)])
    stages = chain()
    again = run(world, stages)
    assert (again.exit_code, again.resumed_at) == (0, ""), "the next one begins from what is live"
    assert store.ancestors(live(store)) == [first]


def test_a_cycle_goes_on_where_live_went_on(world: tuple[Workspace, Store], tmp_path: Path) -> None:
    """A canary that is promoted meanwhile: the gate compares with it."""
    _, store = world
    stages, first = chain(), live(store)
    promoted = child(store, tmp_path / "promoted", first)
    stages["train"].before = lambda: serve(store, promoted.digest)
    result = run(world, stages)
    assert result.exit_code == 0
    report = next(stage for stage in result.stages if stage.command == "eval")
    assert report.inputs["live"].digest == promoted.digest
    assert live(store) == result.made["train"]["checkpoint"]


def test_what_was_served_again_before_the_next_stage_is_kept(world: tuple[Workspace, Store]) -> None:
    _, store = world
    second = child(store, world[0].root.parent / "second", live(store)).digest
    serve(store, second)
    stages = chain()

    def thought_better() -> None:
        roll_back(store)
        serve(store, second)

    stages["train"].before = thought_better
    assert run(world, stages).exit_code == 0
    assert store.ancestors(live(store))[0] == second


def test_a_deploy_by_hand_meanwhile_of_what_did_not_grow_out_of_it(
    world: tuple[Workspace, Store], tmp_path: Path
) -> None:
    _, store = world
    stages, first = chain(), live(store)
    stages["train"].before = lambda: serve(store, child(store, tmp_path / "other", "sha256:0").digest)
    result = run(world, stages)
    assert result.exit_code == 3
    assert result.error is not None
    assert result.error["message"] == "checkpoint@v1, which this cycle began from, is live no more"
    assert first not in store.ancestors(live(store))
