"""Changes followed in several lists come out as in one: what a list took is not there for the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cursorbench.history.changes import Change, Survival
from cursorbench.history.follow import follow_all
from cursorbench.history.repository import Repository
from tests.cursorbench.history.gits import HOUR, Git, change

FIRST = "def first_of_all():\n    return 'the first'\n"
SECOND = "def second_of_all():\n    return 'the second'\n"


@pytest.fixture
def git(tmp_path: Path) -> Git:
    git = Git(tmp_path / "r")
    git.commit(-HOUR, {"a.py": "", "b.py": ""})
    git.commit(HOUR, {"a.py": FIRST, "b.py": SECOND})
    git.commit(2 * HOUR, {"b.py": ""})
    git.commit(40 * 24 * HOUR, {"c.py": "x"})
    return git


def followed(git: Git, *batches: Sequence[Change]) -> dict[str, Survival]:
    with Repository(git.folder) as repository:
        return {one.key: one for _, found in follow_all(repository, batches, named=()) for one in found}


def test_two_lists_are_as_one(git: Git) -> None:
    """Two equal attempts at a.py: one commit took one of them, the later. b.py stood for an hour."""
    early = change("", FIRST, at=0, key="early", session="e1")
    late = change("", FIRST, at=1000, key="late", session="e2")
    other = change("", SECOND, path="b.py", at=0, key="other", session="e1")
    one = followed(git, [early, late, other])
    assert {key: bool(found.how) for key, found in one.items()} == {
        "early": False,
        "late": True,
        "other": True,
    }
    assert one["other"].kept["1h"].rate == 0.0
    assert followed(git, [late], [early], [other]) == one
    assert followed(git, [late, other], [early]) == one
    alone = followed(git, [early])
    assert alone["early"].how == "content"  # with nobody to take its lines


@pytest.mark.parametrize("whole", [False, True])
def test_what_one_change_took_of_a_renamed_file_is_no_others(git: Git, whole: bool) -> None:
    """The file that the commit made, and what differs from the one it took away, are one file's lines."""
    old = "".join(f"entry_number_{n} = {n}\n" for n in range(9))
    git.commit(-HOUR, {"old.py": old})
    git.commit(HOUR, {"old.py": None, "new.py": old + FIRST})
    first = change(old, old + FIRST, path="new.py", key="1")
    second = change(None if whole else old, old + FIRST, path="new.py", key="2", at=60_000)
    for batches in ([[first, second]], [[second], [first]]):
        assert {key: one.how for key, one in followed(git, *batches).items()} == {"1": "", "2": "content"}
