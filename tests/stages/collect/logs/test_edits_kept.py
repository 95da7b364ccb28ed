"""Which edits a repository is asked about, and with which commit."""

from __future__ import annotations

import random
import time
import zlib
from pathlib import Path

import msgspec
import pytest

from cursorbench.sessions import items as said
from stages.collect.logs.edits import KeptEdits, belongs, repository_of
from stages.collect.logs.spill import Spill
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
        ("/home/ann/shop", "/home/ann/shop.worktrees/try-2/a.py", True),
        ("/home/ann/shop__worktrees/try-2", "a.py", True),
        ("/home/ann/shop", "/home/ann/worktrees/try-2/a.py", False),
        ("C:\\work\\shop", "src\\a.py", True),
        ("C:\\work\\other", "src\\a.py", False),
        ("C:\\work\\Shop", "src\\a.py", True),  # a clone of ann/Shop; the machine tells no case apart
        ("", "/Users/ann/SHOP.worktrees/try-2/a.py", True),
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


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/ann/shop/.claude/worktrees/agent-a418a98e", "shop"),
        ("/home/ann/shop/.claude/worktrees/feat/web", "shop"),
        ("/home/ann/.claude/worktrees/agent-a418a98e", ""),
        ("C:\\work\\shop\\.claude\\worktrees\\x", "shop"),
        ("/home/ann/.cursor/worktrees/shop/e85Lc", "shop"),
        ("/home/ann/.codex/worktrees/3ffe/shop", "shop"),
        ("/home/ann/shop/.claude", ".claude"),
        ("/home/ann/shop/.worktrees/1", "shop"),
        ("/home/ann/shop.worktrees/try-2/web", "shop"),
        ("/home/ann/shop.worktrees", "shop.worktrees"),
    ],
)
def test_a_worktree_that_an_agent_made_is_its_repositorys(cwd: str, name: str) -> None:
    assert repository_of(cwd) == name


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("o/shop", "shop"),
        ("https://example.org/o/my.shop.git/", "my.shop"),
        ("git@example.org:shop.git", "shop"),
        ("https://example.org/..git", "try-2"),  # as Entire leaves some of a masked address
        ("https://example.org/o/REDACTED.git", "try-2"),
        ("", "try-2"),
    ],
)
def test_a_log_that_names_its_repository_is_believed(named: str, name: str) -> None:
    """A worktree of somebody's own naming tells nothing of it."""
    assert repository_of("/srv/trees/try-2", named) == name


def test_edits_in_a_worktree_are_the_repositorys_that_the_log_names() -> None:
    kept = KeptEdits(SHOP, all_of_it=False, spill=Spill())
    session = Session("copilot-cli", "1", "1", cwd="/srv/trees/try-2", repository="shop")
    for n, path in enumerate(("a.py", "/srv/trees/try-2/src/b.py", "../c.py", "/srv/trees/d.py")):
        kept.add(session, edit(path, n), f"e{n}", "episode")
    (changes,) = kept.batches()
    assert ([one.key for one in changes], kept.elsewhere) == (["e0", "e1"], 2)
    session.repository = "try-2"  # by its folder
    kept.add(session, edit("a.py", 5), "e5", "episode")
    assert kept.elsewhere == 3


def edit(path: str, at: int) -> said.Edit:
    return said.Edit(
        session="1", place=PLACE, id=path, at=at, path=path, status="applied", before="a", after="b"
    )


def test_an_edit_goes_with_the_first_commit_that_its_session_names_after_it() -> None:
    kept = KeptEdits(SHOP, all_of_it=True, spill=Spill())
    session = Session("claude-code", "1", "1")
    for sha, at, paths in (("c3", 300_000, ("b.py",)), ("c2", 200_000, ()), ("c1", 100_000, ())):
        kept.commit("1", said.Commit(session="1", place=PLACE, id=f"id-{sha}", at=at, sha=sha, paths=paths))
    for n, (path, at) in enumerate((("a.py", 400_000), ("src/b.py", 290_000), ("a.py", 170_000))):
        session.at = at
        kept.add(session, edit(path, at), f"e{n}", "episode")
    (changes,) = kept.batches()
    assert [one.commits for one in changes] == [(), ("c3", "id-c3"), ("c2", "id-c2")]
    assert list(kept.named()) == ["c3", "id-c3", "c2", "id-c2"]


def test_commits_of_other_files_are_not_looked_at_for_every_edit() -> None:
    """All that a session names were: 10 s for a thousand edits and commits, hours for a long log's."""
    kept = KeptEdits(SHOP, all_of_it=True, spill=Spill())
    for n in range(1_000):
        kept.add(Session("aider", "1", "1"), edit(f"src/{n}.py", 0), f"e{n}", "episode")
    for n in range(2_000):
        paths = (f"src/{n // 2}.py",) if n % 4 == 1 else ("docs/a.md",)
        kept.commit("1", said.Commit(session="1", place=PLACE, sha=f"c{n}", paths=paths))
    began = time.process_time()
    (changes,) = kept.batches()
    assert [one.commits for one in changes] == [() if n % 2 else (f"c{2 * n + 1}",) for n in range(1_000)]
    assert time.process_time() - began < 2


def test_edits_come_in_lists_of_a_bounded_size_with_what_belongs_together() -> None:
    """Two files of one name in two episodes, 20 characters an edit; a list of 45 takes two of them."""
    kept = KeptEdits(SHOP, all_of_it=True, spill=Spill(in_memory=10))
    session = Session("claude-code", "1", "1")
    told = (("b.py", "e1"), ("x/a.py", "e1"), ("a.py", "e2"), ("b.py", "e1"), ("b.py", "e1"), ("a.py", "e2"))
    for n, (path, episode) in enumerate(told):
        session.at = 1000 + n
        item = said.Edit(
            session="1", place=PLACE, id=str(n), path=path, status="applied", before="x" * 10, after="y" * 10
        )
        kept.add(session, item, f"v{n}", episode)
    kept.add(session, said.Edit(session="1", place=PLACE, id="1", path="x/a.py", status="undone"), "", "")
    (whole,) = kept.batches()
    assert [(one.key, one.undone) for one in whole] == [(f"v{n}", n == 1) for n in range(6)]
    assert {(one.before, one.after, one.diff) for one in whole} == {("x" * 10, "y" * 10, None)}
    parts = [[one.key for one in part] for part in kept.batches(most=45)]
    assert parts == [
        ["v2", "v5"],
        ["v1"],
        ["v0", "v3", "v4"],
    ]  # an episode is not cut


def test_a_call_that_changed_a_file_in_several_parts_is_undone_with_all_of_them() -> None:
    kept = KeptEdits(SHOP, all_of_it=True, spill=Spill())
    session = Session("copilot-cli", "1", "1")
    for n, call in enumerate(("one", "one", "two")):
        item = msgspec.structs.replace(edit("a.py", 1000), id=call, before=str(n))
        kept.add(session, item, f"v{n}", "episode")
    taken_back = said.Edit(session="1", place=PLACE, id="one", path="a.py", status="undone")
    for item in (taken_back, taken_back):  # told once for every part
        kept.add(session, item, "", "")
    kept.add(session, msgspec.structs.replace(edit("a.py", 2000), id="one"), "v3", "episode")
    (changes,) = kept.batches()
    assert [one.undone for one in changes] == [True, True, False, False]


def test_a_file_is_one_however_its_path_is_spelled() -> None:
    """What a later edit of `./a.py` rewrote of `a.py` counted as lost, and any `a.py` could be the one."""
    kept = KeptEdits(SHOP, all_of_it=False, spill=Spill())
    session = Session("opencode", "1", "1")
    told = ("a.py", "./a.py", "../lib/a.py", "../../other/a.py", "/home/ann/shop/web/a.py", "C:\\a.py")
    for cwd, paths in (("", told[:3]), ("/home/ann/shop/web", told), ("C:\\shop", told[:1])):
        session.cwd = cwd
        for path in paths:
            kept.add(session, edit(path, 1000), "v", "episode")
    session.cwd = "/home/ann/other"
    kept.add(session, edit("src/shop/a.py", 1000), "v", "episode")
    (changes,) = kept.batches()
    web = "/home/ann/shop/web/a.py"
    assert [one.path for one in changes] == [
        "a.py", "a.py", "../lib/a.py", web, web, "/home/ann/shop/lib/a.py", web, "C:\\shop\\a.py",
    ]  # fmt: skip
    assert kept.elsewhere == 3


def test_a_relative_path_leads_where_its_folder_says() -> None:
    """Out of the repository on Windows, too; and into it, from the folder above in which it lies."""
    kept = KeptEdits(SHOP, all_of_it=False, spill=Spill())
    session = Session("codex", "1", "1")
    for cwd, paths in (
        ("C:\\work\\shop", ("..\\other\\a.py", "../other/a.py", "web\\a.py", "web/a.py")),
        ("/srv/git", ("shop/a.py", "other/a.py")),
        ("/home/ann/other", ("shop/a.py",)),  # a folder of that project
    ):
        session.cwd = cwd
        for path in paths:
            kept.add(session, edit(path, 1000), "v", "episode")
    (changes,) = kept.batches()
    windows = "C:\\work\\shop\\web\\a.py"
    assert [one.path for one in changes] == [windows, windows, "/srv/git/shop/a.py"]
    assert kept.elsewhere == 4


def test_what_is_put_aside_comes_back_and_is_readable_nowhere(tmp_path: Path) -> None:
    with Spill(tmp_path, in_memory=0) as spill:
        secret = random.Random(0).randbytes(4096)  # deflate stores what it cannot make smaller as it is
        assert secret[:64] in zlib.compress(secret, 1)
        told = [secret, b"", b"password" * 1000]
        numbers = [spill.add(one) for one in told]
        assert [spill.read(n) for n in reversed(numbers)] == told[::-1]
        assert list(tmp_path.iterdir()) == []  # the file has no name
        spill._file.seek(0)
        assert secret[:64] not in spill._file.read()
