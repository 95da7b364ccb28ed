"""What a repository tells of edits that were captured at the gateway, up to their reward."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtrl_cli.main import run
from stages import schemas, tables
from stages.distill.run import STAGE as DISTILL
from stages.distill.spec import COLUMNS
from stages.errors import InputMissingError
from stages.result import StageResult
from stages.spool.reader import open_event
from tests.cursorbench.history import gits
from tests.stages.collect.test_run import events
from tests.stages.world import HOUR, T0, World

BEFORE = "def area(width, height):\n    return width + height\n"
AFTER = "def area(width, height):\n    check(width, height)\n    return width * height\n"
LATER = "def area(width, height):\n    check(width, height)\n    return height * width\n"
# two lines added, one of which stands an hour after the commit; one deleted, which is still absent
COUNTS = {"added": 2, "added_kept": 1, "deleted": 1, "deleted_kept": 1}
CALL = {"path": "/home/ada/shop/src/area.py", "before": BEFORE, "after": AFTER, "part": True, "by_call": True}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, '[collect]\nclock = "events"\nrepos = ["../shop"]\n')
    world.generation("g1", "e1", 0)
    world.generation("g2", "e2", 0, session="s2")
    yield world
    world.close()


@pytest.fixture
def shop(tmp_path: Path) -> Callable[[int, str], None]:
    """Commits that many ms after T0."""
    git = gits.Git(tmp_path / "shop")

    def commit(at: int, text: str) -> None:
        git.commit(T0 - gits.T0 + at, {"src/area.py": text})

    commit(-HOUR, BEFORE)
    commit(HOUR // 6, AFTER)
    commit(HOUR, LATER)
    commit(2 * HOUR, LATER)
    return commit


def collected(world: World, *overrides: str) -> tuple[StageResult, list[dict[str, Any]]]:
    """The run, and what was told behind clients' events: type, time and data."""
    world.tick(4 * HOUR)
    result = world.collect(*overrides)
    told = [row for row in events(result.outputs["interactions"]) if row.derived]
    opened = [open_event(row.event, row.user, row.sealed, world.vault) for row in told]
    return result, [
        {"about": one.generation_id, "type": one.type, "at": one.at - T0, **one.data} for one in opened
    ]


def test_what_stands_of_an_edit_an_hour_after_its_commit_is_told_and_rewarded(
    world: World, shop: Any
) -> None:
    world.event("g1", "edit_applied", 500, **CALL)
    result, told = collected(world)
    at = HOUR + HOUR // 6
    assert told == [
        {"about": "g1", "type": "edit_survival", "at": at, "path": CALL["path"], "horizon_s": 3600, **COUNTS}
    ]
    kept = {"lines": 3, "kept": 2, "rate": pytest.approx(2 / 3)}
    persistence = result.metrics["persistence"]
    assert (persistence["edits"], persistence["kept"]["1h"], persistence["made_elsewhere"]) == (1, kept, 0)
    experience = world.run(DISTILL).outputs["experience"]
    rows = tables.read(experience.path / "episodes.parquet", schemas.experience_episodes(COLUMNS)).to_pylist()
    found = {row["episode_id"]: row["edit_persistence"] for row in rows}
    assert (found["e1"], found["e2"]) == (pytest.approx(2 / 3), None)


def test_a_history_that_goes_on_is_asked_again(world: World, shop: Any) -> None:
    world.event("g1", "edit_applied", 500, **CALL)
    first, _ = collected(world)
    assert world.collect().status == "noop"
    shop(26 * HOUR, LATER)
    again, told = collected(world)
    assert again.outputs["interactions"].digest != first.outputs["interactions"].digest
    assert [one["horizon_s"] for one in told] == [3600, 86400]


def test_who_measures_or_tells_by_itself_is_left_to_it(world: World, shop: Any) -> None:
    world.event("g1", "edit_applied", 500, **CALL)
    world.event("g1", "edit_survival", HOUR, path=CALL["path"], horizon_s=3600, now="")
    client = {"path": "src/area.py", "before": BEFORE, "after": AFTER}
    world.event("g2", "edit_applied", 600, **client)
    world.event("g2", "edit_applied", 500, **CALL)
    _, told = collected(world)
    assert [(one["about"], one["path"]) for one in told] == [("g2", "src/area.py")]


@pytest.mark.parametrize("path", ["/home/ada/other/src/area.py", "/srv/shop/../src/area.py"])
def test_an_edit_of_another_repository_is_counted(world: World, shop: Any, path: str) -> None:
    world.event("g1", "edit_applied", 500, **CALL | {"path": path})
    result, told = collected(world)
    assert told == []
    assert (result.metrics["persistence"]["edits"], result.metrics["persistence"]["made_elsewhere"]) == (0, 1)
    assert "all edits (1) were made in folders not called shop" in result.warnings[0]


def test_a_repository_is_called_as_the_link_that_names_it(world: World, shop: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").rename(tmp_path / "0001.git")
    (tmp_path / "shop").symlink_to("0001.git")
    for generation, folder in (("g1", "home/ada/shop"), ("g2", "srv/0001")):
        world.event(generation, "edit_applied", 500, **CALL | {"path": f"/{folder}/src/area.py"})
    result, _ = collected(world, 'collect.repos=["../0001.git", "../shop"]')  # one repository: not of two
    assert (result.metrics["persistence"]["edits"], result.metrics["persistence"]["made_elsewhere"]) == (2, 0)


def test_a_commit_that_was_taken_back(world: World, tmp_path: Path) -> None:
    git = gits.Git(tmp_path / "shop")
    git.commit(T0 - gits.T0 - HOUR, {"src/area.py": BEFORE})
    sha = git.commit(T0 - gits.T0 + 1000, {"src/area.py": AFTER})
    git.commit(T0 - gits.T0 + 2000, {"src/area.py": BEFORE}, f"Revert\n\nThis reverts commit {sha}.")
    world.event("g1", "edit_applied", 500, **CALL)
    _, told = collected(world)
    assert [(one["type"], one["at"]) for one in told if one["type"] == "edit_reverted"] == [
        ("edit_reverted", 2000)
    ]


def test_of_who_was_forgotten_nothing_is_told(world: World, shop: Any) -> None:
    world.event("g1", "edit_applied", 500, **CALL)
    world.generation("g3", "e3", 0, user="bob", session="s3")
    world.writer.flush()
    world.vault.forget("ada")
    _, told = collected(world)
    assert told == []


def test_a_repository_that_is_not_there(world: World) -> None:
    with pytest.raises(InputMissingError, match="shop"):
        collected(world)


def test_by_the_command_line(world: World, shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    world.event("g1", "edit_applied", 500, **CALL)
    world.tick(4 * HOUR)
    world.writer.flush()
    collect = ["collect", "-w", str(world.workspace.root), "--json"]
    repo = str(world.root / "shop")
    assert run([*collect, "--repo", repo, "--repo", str(world.root / "nowhere")], debug=False) == 5
    assert "nowhere" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run([*collect, "--repo", repo], debug=False) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["persistence"]["kept"]["1h"]["kept"] == 2
    assert run(["collect", "--from-run", told["run_id"], "-w", str(world.workspace.root)], debug=False) == 0
    assert run(["collect", "--repo", repo, "--force", "-w", str(world.workspace.root)], debug=False) == 0
    assert "0.67 of 3 lines after 1h" in capsys.readouterr().out
    for wrong in (["--repo", repo, "--from-run", told["run_id"]], ["--repository", "shop"]):
        assert run([*collect, *wrong], debug=False) == 2
        assert wrong[0] in str(json.loads(capsys.readouterr().out)["error"])
