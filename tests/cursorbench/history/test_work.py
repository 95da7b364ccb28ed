"""What following costs: what is read and asked, counted."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from cursorbench.history import matching
from cursorbench.history.branch import Changed
from cursorbench.history.changes import Units, units_of
from cursorbench.history.recent import Recent
from cursorbench.history.repository import Repository
from cursorbench.history.standing import _blocks
from cursorbench.history.superseding import Taken, supersede
from cursorbench.sessions.blocks import place_of
from cursorbench.sessions.lines import Kept
from tests.cursorbench.history.gits import DAY, HOUR, NEW, OLD, Git, change, text

IN_A_COMMIT = Taken(("c0", "a.py"), (Counter(), Counter()), Counter())


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def test_versions_of_a_file_that_nobody_can_have_made_are_not_read(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 versions of a file, ten of them in the 30 days after the change; no other file has its line."""
    lines = [f"entry_number_{n} = {n}" for n in range(100)]
    for n in range(100):
        git.commit((3 * n - 150) * DAY, {"a.py": text(*lines[max(0, n - 9) : n + 1])})
    read: set[str] = set()
    known = Repository.known_text

    def counted(self: Repository, blob: str) -> str | None:
        read.add(blob)
        return known(self, blob)

    monkeypatch.setattr(Repository, "known_text", counted)
    (got,) = git.follow(change(text(*lines[41:50]), text(*lines[41:51]), at=-60_000))
    assert (got.how, got.kept["7d"], got.kept["head"]) == ("content", Kept(1, 1), Kept(1))
    assert len(read) < 20


def test_which_branch_has_a_commit_is_asked_once(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git("checkout", "-q", "-b", "feature")
    sha = git.commit(0, {"a.py": NEW})
    git("checkout", "-q", "main")
    git.commit(HOUR, {"b.py": OLD})
    asked = []
    run = Repository.git

    def counted(self: Repository, *arguments: str) -> str:
        asked.append(arguments[0])
        return run(self, *arguments)

    monkeypatch.setattr(Repository, "git", counted)
    for got in git.follow(*(change(OLD, NEW, key=str(n), commits=(sha,)) for n in range(5))):
        assert (got.kept, got.reason) == ({}, "its commit is on feature, which is not merged")
    assert asked.count("for-each-ref") == 1


def test_folders_that_were_read_are_kept_up_to_a_number_of_names(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursorbench.history.repository._NAMES", 100)
    files = {f"folder/{n}.py": text(f"first_value_of_{n} = 1") for n in range(60)}
    roots = []
    for n in range(9):
        git.commit(n * HOUR, files | {f"folder/{n}.py": text(f"other_value_of_{n} = 2")})
        roots.append(git("rev-parse", "HEAD^{tree}"))
    with Repository(git.folder) as repository:
        found = [repository.find(root, f"folder/{n}.py") for n, root in enumerate(roots)]
        assert found == [git("rev-parse", f"HEAD~{8 - n}:folder/{n}.py") for n in range(9)]
        last = git("rev-parse", "HEAD:folder/59.py")
        assert {repository.find(root, "folder/59.py") for root in roots} == {last}
        assert sum(len(entries) for entries, _ in repository._trees._kept.values()) <= 100


def test_what_was_asked_for_last_is_kept() -> None:
    recent: Recent[str | None] = Recent(10)
    for name in "abc":
        recent.put(name, name, 4 if name == "c" else 3)
    assert ("a" in recent, recent["a"]) == (True, "a")
    recent.put("d", None, 3)
    assert [name in recent for name in "abcd"] == [True, False, True, True]
    recent.put("e", "much", 99)
    assert [name in recent for name in "abcde"] == [False] * 4 + [True]


def test_a_short_change_is_compared_with_the_commits_at_its_lines(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole texts are compared, so every change with every commit of a much edited file took minutes."""
    lines = [f"{n}," for n in range(40)]
    changes = []
    for n in range(0, 40, 4):
        git.commit(n * HOUR - 1, {"a.py": text(*lines)})
        lines[n] = f"{n};"
        changes.append(change(f"{n},\n", f"{n};\n", at=n * HOUR, key=str(n)))
    last = git.commit(37 * HOUR, {"a.py": text(*lines)})
    asked = []
    compared = matching.taken_whole

    def counted(units: Units, old: str, new: str) -> bool:
        asked.append(units)
        return compared(units, old, new)

    monkeypatch.setattr(matching, "taken_whole", counted)
    found = git.follow(*changes)
    assert [one.kept["head"] for one in found] == [Kept(hunks=1, hunks_kept=1)] * 10
    assert (found[-1].commit, len(asked)) == (last, 11)  # the first commit has all lines


def test_of_a_named_commit_only_files_with_the_changes_lines_are_looked_at(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them were for every change that names it: minutes where it has all of a project."""
    files = {f"f{n}.py": text(f"first_value_of_{n} = 1", f"other_value_of_{n} = 2") for n in range(40)}
    sha = git.commit(0, files)
    changes = [change("", lines, f"/tmp/{name}.new", commits=(sha,)) for name, lines in files.items()]
    asked = []
    score = matching.Matcher._score

    def counted(self: matching.Matcher, units: Units, file: Changed) -> float:
        asked.append(file.path)
        return score(self, units, file)

    monkeypatch.setattr(matching.Matcher, "_score", counted)
    assert [one.path for one in git.follow(*changes)] == list(files)
    assert len(asked) == 40


def test_files_of_many_lines_are_compared_in_time_that_grows_with_their_lines() -> None:
    """Each took the square of its lines, or more: 15 s of these, hours of what a log may hold."""
    began = time.process_time()
    lines = [f"value_{n} = {n}" for n in range(9_000)]
    written = ["", text(*lines), text(*(f"{line}0" for line in lines))]
    first, second = (units_of(change(*sides, session="s")) for sides in pairwise(written))
    supersede([first, second], [IN_A_COMMIT] * 2)
    assert (first.lines, first.superseded, second.lines) == (0, 9_000, 9_000)
    assert place_of(["}"] * 40_000 + ["{"], ["}"] * 80_000 + ["{"]) == 40_000
    alike = ["the same line here"] * 2_000
    assert _blocks(alike, Counter({alike[0]: 1_000}), text(*alike)) == {alike[0]: 1_000}
    assert time.process_time() - began < 2


def test_many_short_changes_are_told_apart_in_reasonable_time() -> None:
    """All pairs of them were compared: 40 s of these."""
    began = time.process_time()
    sides = [("x\n", "p,\nq,\n"), *((f"{n}\n", f"{n},\n") for n in range(9_000))]
    sides += [("p,\nq,\n", "p,\n9\nq,\n"), ("7,\n8,\n", "7,\n9\n8,\n"), ("8,\n", "")]
    changes = [units_of(change(*one, session="s")) for one in sides]
    supersede(changes, [IN_A_COMMIT] * len(changes))
    assert [n for n, units in enumerate(changes) if units.superseded] == [0, 9]
    assert time.process_time() - began < 2
