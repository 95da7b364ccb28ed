"""Commits whose times are wrong or none, and horizons that a history has not reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.builder.candidates import _about
from cursorbench.history.branch import Branch
from cursorbench.history.repository import Repository, milliseconds
from stages.collect.logs.clock import clock_of
from tests.cursorbench.history.gits import (
    ALL,
    DAY,
    HOUR,
    LATE,
    NEW,
    NONE,
    OLD,
    T0,
    Git,
    change,
    taken,
    text,
)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def before_1970(git: Git) -> str:
    """The head once more, of an author and a committer who have no time that git prints."""
    lines = git("cat-file", "commit", "HEAD").split("\n")
    told = [f"{line.rsplit(' ', 2)[0]} -100 +0000" if "@example.org" in line else line for line in lines]
    path = git.folder / ".git" / "written"
    path.write_text("\n".join(told) + "\n")
    made = git("hash-object", "-t", "commit", "-w", "--literally", str(path))
    git("reset", "-q", "--hard", made)
    return made


@pytest.mark.parametrize("told", ["", "-100", "1e9", "٣", "9" * 12, "9" * 5000])
def test_a_time_that_is_none(told: str) -> None:
    assert milliseconds(told) is None
    assert milliseconds("1700000000") == T0


def test_a_commit_without_a_time_has_that_of_its_parent(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    root = before_1970(git)
    git.commit(-HOUR, {"b.py": text("something_else = 1")})
    second = git.commit(0, {"b.py": text("something_else = 2")})
    third = before_1970(git)
    git.commit(60_000, {"a.py": NEW})
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), ALL)
    with Repository(git.folder) as repository:
        branch = Branch(repository, "HEAD")
        assert (branch.times[root], branch.times[third]) == (0, T0 - HOUR)
        assert second not in branch
        assert repository.commit_time(third) == 0
        assert clock_of(repository, "HEAD", [(T0, "")]).utc(T0) == T0
        assert _about(repository, third) == ("a", "1970-01-01T00:00:00+00:00", "m")


def test_a_clock_that_was_ahead_makes_no_horizon_known(git: Git) -> None:
    git.commit(-9 * DAY, {"a.py": OLD})
    git.commit(3650 * DAY, {"z.py": text("of_a_clock = 'far ahead'")})
    git.commit(-HOUR, {"b.py": text("something_else = 1")})
    git.commit(60_000, {"a.py": NEW})
    git.commit(2 * HOUR, {"b.py": text("something_else = 2")})
    more = NEW + text("not_committed_yet = 1")
    got, open_ = git.follow(change(OLD, NEW), change(NEW, more, at=HOUR, key="open"))
    assert got.kept == {"1h": ALL, "head": ALL}
    assert (open_.kept, open_.reason) == ({}, "no commit took it so far")
    git.commit(31 * DAY, {"b.py": text("something_else = 3")})
    got, open_ = git.follow(change(OLD, NEW), change(NEW, more, at=HOUR, key="open"))
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), ALL)
    assert [kept.rate for kept in open_.kept.values()] == [0.0] * 4


def test_a_horizon_is_reached_by_a_commit_just_as_young(git: Git) -> None:
    taken(git)
    git.commit(60_000 + HOUR - 1000, {})
    assert set(git.follow(change(OLD, NEW))[0].kept) == {"head"}
    git.commit(60_000 + HOUR, {"a.py": OLD})
    assert git.follow(change(OLD, NEW))[0].kept == {"1h": NONE, "head": NONE}


def test_the_newest_commit_of_a_time_among_wrong_ones(git: Git) -> None:
    times = [0, 5, 2, 9, 1, 7, 12, 3, 20]
    made = [git.commit(at * HOUR, {}) for at in times]
    with Repository(git.folder) as repository:
        branch = Branch(repository, "HEAD")
        for at in range(-1, 22):
            older = [oid for oid, time in zip(made, times, strict=True) if time <= at]
            assert branch.at_time(T0 + at * HOUR) == (older[-1] if older else "")
