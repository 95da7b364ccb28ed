"""Which edits a repository is asked about, and with which commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorbench.sessions import items as said
from stages.collect.logs.edits import KeptEdits, belongs, repository_of
from stages.collect.logs.state import Session

PLACE = said.Place("log")
SHOP = Path("/srv/git/shop")


@pytest.mark.parametrize(
    ("cwd", "path", "here"),
    [
        ("/home/ann/shop", "a.py", True),
        ("/home/ann/shop/web", "web/a.py", True),
        ("/home/ann/other", "README.md", False),
        ("/home/ann/other", "/srv/git/shop/a.py", True),
        ("/home/ann/shop", "/home/ann/other/README.md", False),
        ("", "README.md", True),  # nobody knows better
        ("C:\\work\\shop", "src\\a.py", True),
        ("C:\\work\\other", "src\\a.py", False),
    ],
)
def test_edits_of_other_projects_do_not_count_as_lost(cwd: str, path: str, here: bool) -> None:
    assert belongs(SHOP, cwd, path) is here


@pytest.mark.parametrize(
    ("cwd", "name"),
    [("/home/ann/shop", "shop"), ("/home/ann", ""), ("C:\\Users\\ann", ""), ("/root", ""), ("", "")],
)
def test_a_home_folder_names_a_person_and_no_repository(cwd: str, name: str) -> None:
    assert repository_of(cwd) == name


def edit(path: str, at: int) -> said.Edit:
    return said.Edit(
        session="1", place=PLACE, id=path, at=at, path=path, status="applied", before="a", after="b"
    )


def test_an_edit_goes_with_the_first_commit_that_its_session_names_after_it() -> None:
    kept = KeptEdits(SHOP, all_of_it=True)
    session = Session("claude-code", "1", "1")
    for sha, at, paths in (("c3", 300_000, ("b.py",)), ("c2", 200_000, ()), ("c1", 100_000, ())):
        kept.commit("1", said.Commit(session="1", place=PLACE, id=f"id-{sha}", at=at, sha=sha, paths=paths))
    for n, (path, at) in enumerate((("a.py", 400_000), ("src/b.py", 290_000), ("a.py", 170_000))):
        session.at = at
        kept.add(session, edit(path, at), f"e{n}", "episode")
    assert [one.commits for one in kept.changes()] == [(), ("c3", "id-c3"), ("c2", "id-c2")]
