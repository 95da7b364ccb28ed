"""What is unknown of a change and why, and the text of its file at a horizon."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.history.follow import follow, text_at
from cursorbench.history.repository import Repository
from tests.cursorbench.history.gits import DAY, HOUR, LATE, NEW, OLD, Git, change, taken, text


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def test_nothing_is_known_of_a_change_without_text(git: Git) -> None:
    sha = taken(git)
    (got,) = git.follow(change(None, None, commits=(sha,)))
    assert (got.commit, got.how, got.kept, got.lines) == (sha, "sha", {}, 0)
    assert "no text" in got.reason


def test_names_that_another_history_has(git: Git) -> None:
    taken(git)
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD, NEW + text("def unheard_of(): pass") * 9, at=None, commits=("abcdef1",)))
    assert (got.kept, got.reason) == ({}, "the history has none of the commits that the log names")
    (got,) = git.follow(change("", text("def unheard_of(): pass"), path="z.py"))
    assert (got.kept, got.reason) == ({}, "the history has no file of this name")


def test_files_written_whole_that_the_log_does_not_name_are_not_one(git: Git) -> None:
    taken(git)
    git.commit(LATE, {})
    whole = [
        change(None, text(f"def {name}(): pass"), path="", session="s")
        for name in ("unheard_of", "unseen_by")
    ]
    got = git.follow(*whole)
    assert [(one.kept, one.superseded, one.reason) for one in got] == [
        ({}, 0, "no commit took it, and the log names no file")
    ] * 2


def test_the_text_at_a_horizon(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": None, "c.py": NEW + "# more\n"})
    git.commit(2 * DAY, {"c.py": None})
    with Repository(git.folder / ".git") as repository:
        (got,) = follow(repository, [change(OLD, NEW)])
        texts = [text_at(repository, got, "a.py", name) for name in ("1h", "24h", "head")]
        assert texts == [NEW, NEW + "# more\n", ""]
        with pytest.raises(UsageError, match="has not reached 7d"):
            text_at(repository, got, "a.py", "7d")
        with pytest.raises(UsageError, match="no horizon"):
            text_at(repository, got, "a.py", "1y")
        (lost,) = follow(repository, [change(OLD, NEW + "def a_third():\n" * 9, path="/x/a.py")])
        assert (lost.commit, text_at(repository, lost, "/x/a.py", "1h")) == ("", NEW)


def test_an_unknown_head(git: Git) -> None:
    taken(git)
    with Repository(git.folder) as repository, pytest.raises(InputMissingError, match="no commit nowhere"):
        list(follow(repository, [change(OLD, NEW)], head="nowhere"))
