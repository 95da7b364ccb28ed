"""`--line` and `--input` reach all that `rtrl distill` does: its stage, its explanation, who is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rtrl_cli.app import app
from rtrl_cli.commands import distill
from stages.distill import explain as explaining
from stages.errors import UsageError
from stages.result import StageResult
from tests.stages.world import World


@pytest.fixture
def root(tmp_path: Path) -> Path:
    world = World(tmp_path, "[populations.acme]\n")
    world.close()
    return world.workspace.root


@pytest.mark.parametrize("line", ["auto", "acme"])
def test_alarms_are_told_of_the_line_that_was_distilled(
    root: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def tell(workspace: Any, _: object) -> list[str]:
        told.append(workspace.settings.workspace.line)
        return []

    monkeypatch.setattr(distill, "run_once", lambda *_: StageResult("distill", "succeeded"))
    monkeypatch.setattr(distill, "tell_alarms", tell)
    distill.command(line=None if line == "auto" else line, workspace=root)
    assert told == [line]


def test_an_episode_is_explained_on_its_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str]] = []

    class Told:
        def to_dict(self) -> dict[str, Any]:
            return {}

        def lines(self) -> list[str]:
            return []

    def explain(workspace: Any, _: object, ref: str, episode: str) -> Told:
        asked.append((workspace.settings.workspace.line, ref, episode))
        return Told()

    monkeypatch.setattr(explaining, "explain", explain)
    distill.command(explain="e", line="acme", workspace=root)
    distill.command(explain="e", inputs=["experience@v3"], workspace=root)
    assert asked == [("acme", "experience@latest", "e"), ("auto", "experience@v3", "e")]
    for refs in (["interactions@v1"], ["experience@v1", "experience@v2"]):
        with pytest.raises(UsageError, match="reads one experience"):
            distill.command(explain="e", inputs=refs, workspace=root)


def test_only_an_experience_is_explained(tmp_path: Path) -> None:
    world = World(tmp_path)
    live = ["--input", world.live, "-w", str(world.workspace.root)]
    done = CliRunner().invoke(app, ["distill", "--explain", "e", *live])
    world.close()
    assert isinstance(done.exception, UsageError)
    assert "checkpoint@v1 is no experience" in str(done.exception)
