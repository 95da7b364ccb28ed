"""What a build into a suite that is there makes of earlier builds' tasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorbench.builder import build as builder
from cursorbench.builder.build import Built, build
from cursorbench.builder.draft import Draft
from cursorbench.builder.judge import Judge
from cursorbench.builder.requests import Request, Traced
from cursorbench.builder.settings import Settings
from cursorbench.builder.state import State, Verdict
from tests.cursorbench.builder.test_build import CHANGES, Told, repository
from tests.cursorbench.history.gits import HOUR, Git

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    """A build of the repository into the suite, in which every candidate makes a task at once."""

    def make(
        judge: Judge, draft: Draft, said: Callable[[str], None], replacing: Callable[[], None]
    ) -> dict[str, Any]:
        replacing()
        folder = judge.place(draft.name)
        folder.mkdir(parents=True)
        (folder / "instruction.md").write_text("x")
        return draft.facts

    monkeypatch.setattr(Judge, "make", make)
    usual = Settings(
        tmp_path / "repo", tmp_path / "suite", "me/words", environment="host", cache=tmp_path / "c"
    )

    def made(**changes: Any) -> Built:
        return build(replace(usual, **changes), Told())

    return made


def tasks(built: Built) -> list[str]:
    return sorted(path.name for path in (built.suite.path / "tasks").iterdir())


def test_a_commit_that_was_reverted_since(tmp_path: Path, again: Callable[..., Built]) -> None:
    """It stayed in the suite for ever, and beyond a limit as well."""
    named = repository(tmp_path / "repo", "fix", "feature")
    kept, gone = (f"me__words-{named[name][:10]}" for name in ("feature", "fix"))
    assert tasks(again()) == sorted((kept, gone))
    git = Git(tmp_path / "repo")
    git.commit(9 * HOUR, {"NEWS.md": "None.\n"}, f"Revert it\n\nThis reverts commit {named['fix']}.")
    built = again(limit=1)
    assert tasks(built) == [kept]
    assert (built.removed, built.counts()["removed"]) == ((gone,), 1)
    assert "removed" not in again().counts()
    assert not list((tmp_path / "suite" / ".build" / "drafts").iterdir())


def test_a_task_of_another_name_is_the_same_commits(tmp_path: Path, again: Callable[..., Built]) -> None:
    """Every commit was in the suite twice, in two clusters."""
    named = repository(tmp_path / "repo", "fix", "feature")
    again(name="words")
    assert tasks(again(limit=1)) == [f"me__words-{named['feature'][:10]}"], "two names are two clusters"
    assert tasks(again()) == sorted(f"me__words-{commit[:10]}" for commit in named.values())


def test_what_is_only_beyond_the_bounds_stays(tmp_path: Path, again: Callable[..., Built]) -> None:
    named = repository(tmp_path / "repo", *(name for name in CHANGES if name != "leaks"))
    every = sorted(f"me__words-{commit[:10]}" for commit in named.values())
    assert tasks(again()) == every
    assert tasks(again(limit=1)) == every
    assert tasks(again(since=1 << 60)) == every


def test_a_commit_that_no_session_is_traced_to(
    tmp_path: Path, again: Callable[..., Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message stayed a prompt among those that people wrote."""
    named = repository(tmp_path / "repo", "fix", "feature")
    folder = {name: f"me__words-{commit[:10]}" for name, commit in named.items()}
    again()
    wish = Request("Count blanks right, please", "log", "sha", 1, None)

    def traced(*names: str) -> None:
        found = Traced({named[name]: wish for name in names}, {})
        monkeypatch.setattr(builder, "_traced", lambda *_: (found, {}))

    traced("fix")
    logs = (tmp_path / "logs",)
    assert tasks(again(sessions=logs, untraced=True)) == sorted(folder.values())
    assert tasks(again(sessions=logs)) == [folder["fix"]]
    traced("feature")
    assert tasks(again(sessions=logs)) == sorted(folder.values()), "whose session is gone was asked for too"


def test_what_is_not_of_this_history_stays(tmp_path: Path, again: Callable[..., Built]) -> None:
    """An import's rows, another repository's commits; and a name that leads elsewhere is nobody's folder."""
    named = repository(tmp_path / "repo", "fix")
    suite = again().suite
    state = State(suite.path)
    suite.folder("row-1").mkdir()
    state.put(Verdict("k", "e" * 40, "row-1", "kept", task="row-1"))
    state.put(Verdict("k", named["fix"], "fix", "kept", task="../../repo"))
    built = again()
    assert tasks(built) == [f"me__words-{named['fix'][:10]}", "row-1"]
    assert (tmp_path / "repo" / ".git").is_dir()
