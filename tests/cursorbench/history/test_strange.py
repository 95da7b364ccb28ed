"""Repositories and logs set up in another way than most: what is known of a change stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from tests.cursorbench.history.gits import ALL, DAY, HOUR, LATE, NEW, NONE, OLD, Git, change, text

EVERY = ("1h", "24h", "7d", "head")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def test_settings_of_a_repository_for_its_output_do_not_count(git: Git) -> None:
    git.commit(60_000, {"folder/a.py": NEW, "other/b.py": NEW})
    git.commit(LATE, {})
    git("config", "log.showRoot", "false")
    git("config", "diff.relative", "true")
    wrote = change(None, NEW, "folder/a.py"), change(None, NEW, "/x/other/b.py", key="other")
    for path in (git.folder, git.folder / "folder"):
        with Repository(path) as repository:
            for got in follow(repository, wrote):
                assert [kept.rate for kept in got.kept.values()] == [1.0] * 4
                assert got.path in ("folder/a.py", "other/b.py")


@pytest.mark.parametrize("told", ["of git", "of .gitmodules"])
def test_a_submodule_that_nobody_wants_to_see_is_one(git: Git, tmp_path: Path, told: str) -> None:
    inner = Git(tmp_path / "inner")
    sha = inner.commit(-HOUR, {"a.py": OLD}, "of the submodule")
    git.commit(-HOUR, {"a.py": OLD})
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.folder), "vendor/lib")
    if told == "of git":
        git("config", "diff.ignoreSubmodules", "all")
    else:
        git("config", "-f", ".gitmodules", "submodule.vendor/lib.ignore", "all")
    first = git.commit(-1000, {})
    git.commit(40 * DAY, {"b.py": OLD})
    (got,) = git.follow(change(OLD, NEW, "/x/repository/vendor/lib/a.py"))
    assert (got.kept, got.reason) == ({}, "its file is in a submodule")
    inner_change = change(OLD, NEW, "/x/repository/vendor/lib/a.py", commits=(sha,))
    _, got = git.follow(change(None, OLD, key="1", at=-HOUR, commits=(first,)), inner_change)
    assert (got.kept, got.reason) == ({}, "its file is in a submodule")


def test_a_named_commit_that_a_clone_does_not_have_yet_is_not_undone(git: Git, tmp_path: Path) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    ours = git.commit(0, {"e.py": OLD})
    git("checkout", "-q", "-b", "feature")
    theirs = git.commit(60_000, {"a.py": NEW})
    git("checkout", "-q", "main")
    git.commit(2 * HOUR, {"b.py": text("something_else = 1")})
    changes = change(None, OLD, "e.py", key="1", at=0, commits=(ours,)), change(OLD, NEW, commits=(theirs,))
    for more, kept, reason in (
        (0, {}, "no commit took it so far"),
        (31 * DAY, dict.fromkeys(EVERY, NONE), "its commit is not in the history: undone"),
    ):
        git.commit(2 * HOUR + more, {})
        clone = tmp_path / f"clone{more}"
        git("clone", "-q", "--single-branch", "-b", "main", f"file://{git.folder}", str(clone))
        with Repository(clone) as repository:
            _, got = follow(repository, changes)
        assert (got.kept, got.reason) == (kept, reason)
    git("merge", "-q", "-m", "m", "feature")
    git("clone", "-q", f"file://{git.folder}", str(tmp_path / "merged"))
    with Repository(tmp_path / "merged") as repository:
        _, got = follow(repository, changes)
    assert (got.how, got.kept["head"]) == ("sha", ALL)


@pytest.mark.parametrize("end", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028"])
def test_a_line_of_a_diff_ends_with_a_newline_alone(git: Git, end: str) -> None:
    old = text("import logging", "def first_one():", "    return 'first value'", "def last_of_all(): pass")
    new = text("import logging", f"{end}def first_one():", "    return 'other value'", "def the_last(): pass")
    git.commit(-HOUR, {"a.py": old})
    git.commit(60_000, {"a.py": new})
    was, now = (side.split("\n")[1:-1] for side in (old, new))
    lines = [" import logging", *(f"-{line}" for line in was), *(f"+{line}" for line in now)]
    diff = "@@ -1,4 +1,4 @@\n" + text(*lines)
    by_texts, by_diff = git.follow(change(old, new)), git.follow(change(None, None, diff=diff))
    assert by_diff == by_texts
    assert by_texts[0].kept["head"].rate == 1.0
