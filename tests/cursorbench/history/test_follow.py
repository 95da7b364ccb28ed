"""What stands of a change, counted by hand on small real repositories."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from cursorbench.history.changes import Survival, units_of
from cursorbench.history.standing import _blocks, _short, taken_whole
from cursorbench.history.superseding import Taken, supersede
from cursorbench.sessions.lines import Kept
from tests.cursorbench.history.gits import ALL, DAY, HOUR, LATE, NEW, NONE, OLD, T0, Git, change, taken, text


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repository")


def test_all_of_it_is_kept(git: Git) -> None:
    sha = taken(git)
    git.commit(LATE, {"b.py": text("something_else = 2")})
    (got,) = git.follow(change(OLD, NEW))
    assert got == Survival(
        key="k", commit=sha, how="content", committed_at=T0 + 60_000,
        kept=dict.fromkeys(("1h", "24h", "7d", "head"), ALL), lines=4, reason="", path="a.py",
        since=T0 + 60_000,
    )  # fmt: skip


def test_lines_lost_between_the_horizons(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": NEW.replace("second value", "rewritten value")})
    git.commit(2 * DAY, {"a.py": OLD})
    git.commit(LATE, {"a.py": NEW})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "24h": Kept(3, 2, 1, 1), "7d": NONE, "head": ALL}


def test_a_part_of_a_file_is_compared_with_the_whole_one(git: Git) -> None:
    twice = OLD + text("def second_one():")  # a line of the change that stands there already
    git.commit(-HOUR, {"a.py": twice})
    git.commit(60_000, {"a.py": twice + text("def second_one():", "    return 'second value'")})
    git.commit(2 * HOUR, {"a.py": twice})
    part = change(
        "return 'first value'\n", "return 'first value'\ndef second_one():\n    return 'second value'\n"
    )
    (got,) = git.follow(part)
    assert got.kept == {"1h": Kept(2, 2), "head": Kept(2, 0)}


def test_reverted(git: Git) -> None:
    taken(git)
    git.time = T0 + 2 * HOUR
    git("revert", "--no-edit", "HEAD")
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "head": NONE}


def test_a_commit_that_was_reset_is_undone(git: Git) -> None:
    sha = taken(git)
    git("reset", "-q", "--hard", "HEAD~1")
    git.commit(LATE, {"b.py": text("something_else = 2")})
    for name in (sha, sha[:7]):
        (got,) = git.follow(change(OLD, NEW, commits=(name,)))
        assert (got.commit, got.how, got.committed_at) == (sha, "sha", T0 + 60_000)
        assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), NONE)
        assert "undone" in got.reason


def test_the_next_attempt_is_not_the_undone_one(git: Git) -> None:
    undone = taken(git)
    git("reset", "-q", "--hard", "HEAD~1")
    again = git.commit(2 * HOUR, {"a.py": NEW})
    first, second = git.follow(
        change(OLD, NEW, key="1", commits=(undone,)), change(OLD, NEW, key="2", at=HOUR, commits=(again,))
    )
    assert (first.kept["head"], second.kept["head"]) == (NONE, ALL)


@pytest.mark.parametrize("file", ["b.py", "a.py"])
def test_the_commit_that_the_log_names_took_another_change(git: Git, file: str) -> None:
    git.commit(-HOUR, {"a.py": OLD, "b.py": text("something_else = 2")})
    # of the session too: in another file with one line of the four, or in this file with none
    other = {"b.py": text("something_else = 2", "def second_one():"), "a.py": text("import random") + OLD}
    named = git.commit(60_000, {file: other[file]})
    took = git.commit(120_000, {"a.py": NEW})
    git.commit(LATE, {"c.py": text("something_else = 3")})
    (got,) = git.follow(change(OLD, NEW, commits=(named,)))
    assert (got.commit, got.how) == (took, "content")
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), ALL)


def test_a_commit_that_is_there_is_not_gone_for_another_name_of_it(git: Git) -> None:
    """The log's id of the call that committed stands behind the SHA. Of a file never added nobody knows."""
    git.commit(-HOUR, {"a.py": OLD})
    named = git.commit(60_000, {"b.py": text("something_else = 2")})
    git.commit(31 * DAY, {"c.py": text("something_else = 3")})
    commits = (named[:7], "tool-12")
    note, code = git.follow(change(OLD, NEW, "notes.md", commits=commits), change(OLD, NEW, commits=commits))
    assert (note.kept, note.reason, note.commit) == ({}, "the history has no file of this name", "")
    assert (code.kept["head"], code.reason, code.commit) == (NONE, "no commit took it", "")


def test_a_change_is_its_named_commits_where_no_commit_has_more_of_it(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    named = git.commit(60_000, {"a.py": text("import random") + OLD})  # all of it was taken out before
    git.commit(LATE, {"c.py": text("something_else = 3")})
    (got,) = git.follow(change(OLD, NEW, commits=(named,)))
    assert (got.commit, got.how, got.since) == (named, "sha", T0 + 60_000)
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), NONE)


def test_what_the_log_tells_as_undone_is_lost_though_a_commit_has_it(git: Git) -> None:
    sha = taken(git)
    git.commit(2 * HOUR, {})
    (got,) = git.follow(change(OLD, NEW, commits=(sha,), undone=True))
    assert got.kept == {"1h": NONE, "head": NONE}
    assert got.reason == "undone, as the log tells"


def test_never_committed(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git.commit(2 * HOUR, {"b.py": text("something_else = 2")})
    (got,) = git.follow(change(OLD, NEW))
    assert (got.kept, got.reason) == ({}, "no commit took it so far")  # its user may still commit it
    git.commit(31 * DAY, {"b.py": text("something_else = 3")})
    (got,) = git.follow(change(OLD, NEW))
    assert (got.commit, got.how, got.committed_at, got.reason) == ("", "", None, "no commit took it")
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), NONE)


def test_renamed(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": None, "folder/new name.py": NEW.replace("import logging\n", "")})
    git.commit(2 * DAY, {"folder/new name.py": None, "folder/c.py": NEW.replace("second value", "none")})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "24h": ALL, "head": Kept(3, 2, 1, 1)}


def test_moved_to_another_file(git: Git) -> None:
    taken(git)
    moved = text("def second_one():", "    return 'second value'")
    git.commit(2 * HOUR, {"a.py": NEW.replace(moved, ""), "b.py": text("something_else = 1") + moved})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "head": ALL}


def test_the_like_of_it_that_stood_elsewhere_before_is_not_moved_code(git: Git) -> None:
    moved = text("def second_one():", "    return 'second value'")
    git.commit(-HOUR, {"a.py": OLD, "b.py": moved})
    git.commit(60_000, {"a.py": NEW})
    git.commit(2 * HOUR, {"a.py": OLD, "b.py": moved + text("something_else = 1")})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "head": NONE}


def test_a_copy_made_long_before_or_after_is_not_moved_code(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": OLD})
    git.commit(3 * DAY, {"copy.py": NEW})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == {"1h": ALL, "24h": NONE, "head": NONE}


def test_moved_into_a_file_of_another_kind_is_lost(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": OLD, "chat.md": NEW})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept["head"] == NONE


def test_squash_merged(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git("checkout", "-q", "-b", "topic")
    first = git.commit(60_000, {"a.py": NEW})
    git.commit(HOUR, {"a.py": NEW + text("def third_one(): pass")})
    git("checkout", "-q", "main")
    git.time = T0 + 2 * DAY
    git("merge", "-q", "--squash", "topic")
    squashed = git.commit(2 * DAY, {})
    git("branch", "-q", "-D", "topic")
    (got,) = git.follow(change(OLD, NEW, commits=(first,)))
    assert (got.commit, got.how, got.kept) == (squashed, "content", {"head": ALL})


def test_amended(git: Git) -> None:
    first = taken(git)
    git.time = T0 + HOUR
    (git.folder / "a.py").write_text(NEW + "# a remark of the user\n")
    git("commit", "-q", "-a", "--amend", "-m", "amended")
    (got,) = git.follow(change(OLD, NEW, commits=(first,)))
    assert (got.commit, got.how, got.kept) == (git("rev-parse", "HEAD"), "content", {"head": ALL})


def test_merged_later_than_the_horizon(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git("checkout", "-q", "-b", "topic")
    sha = git.commit(60_000, {"a.py": NEW})
    git.commit(2 * HOUR, {"a.py": NEW.replace("second value", "rewritten value")})
    git("checkout", "-q", "main")
    git.commit(3 * HOUR, {"b.py": text("something_else = 2")})
    git.time = T0 + 2 * DAY
    git("merge", "-q", "--no-ff", "-m", "merge", "topic")
    (got,) = git.follow(change(OLD, NEW, commits=(sha,)))
    assert (got.commit, got.how) == (sha, "sha")
    assert got.kept == {"1h": ALL, "24h": Kept(3, 2, 1, 1), "head": Kept(3, 2, 1, 1)}


def test_on_a_branch_that_is_not_merged_it_is_unknown(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git("checkout", "-q", "-b", "topic")
    sha = git.commit(60_000, {"a.py": NEW})
    git("checkout", "-q", "main")
    git.commit(LATE, {"b.py": text("something_else = 2")})
    (got,) = git.follow(change(OLD, NEW, commits=(sha,)))
    assert (got.kept, got.reason) == ({}, "its commit is on topic, which is not merged")


@pytest.mark.parametrize("ref", ["refs/pull/12/head", "refs/jj/keep/1", "refs/stash"])
def test_what_only_a_pull_request_of_a_mirror_has_is_lost_in_the_end(git: Git, ref: str) -> None:
    """GitHub keeps a request that was closed for good, jj every commit: nothing of those was ever lost."""
    git.commit(-HOUR, {"a.py": OLD})
    sha = git.commit(60_000, {"a.py": NEW})
    git("update-ref", ref, sha)
    git("reset", "-q", "--hard", "HEAD~1")
    git.commit(LATE, {"b.py": "other_value = 1\n"})
    [open_] = git.follow(change(OLD, NEW, commits=(sha,)))
    assert (open_.kept, open_.reason) == ({}, "no commit took it so far")
    git.commit(40 * DAY, {"b.py": "another_value = 1\n"})
    [closed] = git.follow(change(OLD, NEW, commits=(sha,)))
    assert (closed.kept["7d"], closed.reason) == (NONE, "its commit is not in the history: undone")
    git("tag", "kept", sha)
    [on_tag] = git.follow(change(OLD, NEW, commits=(sha,)))
    assert (on_tag.kept, on_tag.reason) == ({}, "its commit is on kept, which is not merged")


def test_deletions_only(git: Git) -> None:
    git.commit(-HOUR, {"a.py": NEW})
    git.commit(60_000, {"a.py": text("import logging", "def first_one():")})
    git.commit(2 * HOUR, {"a.py": text("import logging", "def first_one():", "    return 'other value'")})
    (got,) = git.follow(change(NEW, text("import logging", "def first_one():")))
    assert (got.how, got.kept) == ("content", {"1h": Kept(0, 0, 3, 3), "head": Kept(0, 0, 3, 2)})


def test_short_lines_are_kept_or_lost_as_a_hunk(git: Git) -> None:
    before, after = text("x = 1", "if x:", "    go()"), text("x = 2", "y = 3", "if x:", "    go()")
    git.commit(-HOUR, {"a.py": OLD + before})
    git.commit(60_000, {"a.py": OLD + after})
    git.commit(2 * HOUR, {"a.py": OLD + after.replace("y = 3", "y = 4")})
    for part in (change(before, after), change("x = 1\n", "x = 2\ny = 3\n")):
        (got,) = git.follow(part)
        assert (got.how, got.lines, got.kept) == (
            "content",
            1,
            {"1h": Kept(hunks=1, hunks_kept=1), "head": Kept(hunks=1)},
        )


@pytest.mark.parametrize("session", ["", "s"])
def test_short_lines_of_edits_that_are_told_by_whole_texts(git: Git, session: str) -> None:
    """One commit takes all of them, so that no text of it is as any was told: all but the first and the last
    were lost, or superseded by the next. The fourth is taken back a day later.
    """
    texts = [[f"v{n}" for n in range(8)]]
    for n, new in enumerate((["w0"], [], ["v2", "n2"], ["w3"], ["w4"], ["v5", "n5"])):
        at = texts[-1].index(f"v{n}")
        texts.append([*texts[-1][:at], *new, *texts[-1][at + 1 :]])
    git.commit(-HOUR, {"a.py": text(*texts[0])})
    git.commit(60_000, {"a.py": text("another_line_of_the_user = 1", *texts[-1])})
    git.commit(DAY, {"a.py": text(*("v3" if line == "w3" else line for line in texts[-1]))})
    git.commit(LATE, {"b.py": OLD})
    found = git.follow(
        *(
            change(text(*before), text(*after), at=n * 1000, key=str(n), session=session)
            for n, (before, after) in enumerate(pairwise(texts))
        )
    )
    assert [one.kept["1h"] for one in found] == [Kept(hunks=1, hunks_kept=1)] * 6
    assert [one.kept["head"].kept for one in found] == [1, 1, 1, 0, 1, 1]


def test_short_lines_alone_are_found_in_no_other_file_of_the_name(git: Git) -> None:
    """What was lost of `a/__init__.py` was kept in `b/__init__.py`, where a user had made one like it."""
    was, new = text("import os", "x = 1"), text("import os", "x = 2")
    git.commit(-HOUR, {"a/__init__.py": was, "b/__init__.py": text("x = 1")})
    git.commit(2 * HOUR, {"b/__init__.py": text("x = 2")})
    git.commit(40 * DAY, {"c.py": OLD})
    (got,) = git.follow(change(was, new, "/home/u/a/__init__.py"))
    assert (got.kept["head"], got.reason) == (Kept(hunks=1), "no commit took it")


def test_of_two_short_lines_of_a_change_the_one_rewritten_later_is_superseded(git: Git) -> None:
    git.commit(-HOUR, {"a.py": text("a", "b", "c", "d")})
    git.commit(60_000, {"a.py": text("a1", "b", "c2")})
    git.commit(LATE, {"b.py": OLD})
    first, second, third = git.follow(
        change(text("a", "b", "c", "d"), text("a1", "b", "c1"), session="s"),
        change(text("a1", "b", "c1"), text("a1", "b", "c2", "d"), at=1000, key="2", session="s"),
        change(text("a1", "b", "c2", "d"), text("a1", "b", "c2"), at=2000, key="3", session="s"),
    )
    assert (first.kept["head"], first.superseded) == (Kept(hunks=1, hunks_kept=1), 1)
    assert (second.kept, second.superseded) == ({}, 1)
    assert (third.kept["head"], third.superseded) == (Kept(hunks=1, hunks_kept=1), 0)


def test_a_diff(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": NEW.replace("second value", "rewritten value")})
    diff = git("diff", "HEAD~2", "HEAD~1")
    (got,) = git.follow(change(None, None, diff=diff))
    assert got.kept == {"1h": ALL, "head": Kept(3, 2, 1, 1)}


def test_a_file_written_whole_counts_what_is_new_in_it(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": NEW.replace("second value", "rewritten value")})
    (got,) = git.follow(change(None, NEW, path="/home/somebody/work/a.py"))
    assert got.kept == {"1h": Kept(3, 3), "head": Kept(3, 2)}


def test_a_horizon_that_has_not_passed_is_unknown(git: Git) -> None:
    taken(git)
    assert list(git.follow(change(OLD, NEW))[0].kept) == ["head"]
    git.commit(60_000 + HOUR, {})
    assert list(git.follow(change(OLD, NEW))[0].kept) == ["1h", "head"]


def test_superseded_in_the_same_session_is_not_lost(git: Git) -> None:
    taken(git)
    newer = NEW.replace("second value", "rewritten value")
    sha = git.commit(HOUR, {"a.py": newer})
    both = [
        change(OLD, NEW, key="1", session="s"),
        change(NEW, newer, key="2", at=HOUR - 60_000, session="s"),
    ]
    first, second = git.follow(*both)
    assert (first.lines, first.superseded, first.kept["head"]) == (3, 1, Kept(2, 2, 1, 1))
    assert (second.commit, second.lines, second.superseded, second.kept["head"]) == (sha, 1, 1, Kept(1, 1))
    first, second = git.follow(both[0], change(NEW, newer, key="2", at=HOUR - 60_000, session="other"))
    assert (first.superseded, first.kept["head"]) == (0, Kept(3, 2, 1, 1))
    assert second.kept["head"] == Kept(1, 1, 1, 1)


def test_what_was_rewritten_before_the_commit_does_not_hide_the_rest(git: Git) -> None:
    draft = text(
        "a_draft = 'number one'", "a_draft = 'number two'", "a_draft = 'number three'", "a_value = 4"
    )
    final = text("a_final = 'number one'", "a_value = 4")
    git.commit(-HOUR, {"a.py": OLD})
    sha = git.commit(60_000, {"a.py": OLD + final})
    first, second = git.follow(
        change(OLD, OLD + draft, key="1", session="s"),
        change(OLD + draft, OLD + final, key="2", at=1_000, session="s"),
    )
    assert (first.commit, first.superseded, first.kept["head"]) == (sha, 3, Kept(1, 1))
    assert (second.commit, second.superseded, second.kept["head"]) == (sha, 3, Kept(1, 1))


FIRST = (
    "def connect(host):",
    "    retries = 5",
    "    timeout = 30",
    "    return opened(host)",
    "    # at the end",
)
LATER = {
    "a part": (change("    retries = 5", "    retries = 9", at=1, key="2", session="s"), 1),
    "the whole": (change(text(*FIRST), text(FIRST[0], "    retries = 9", *FIRST[2:]), at=1, session="s"), 1),
    "taken out": (change("    retries = 5\n", "", at=1, key="2", session="s"), 1),
    "written anew": (change(None, text(FIRST[0], "    retries = 9", *FIRST[2:]), at=1, session="s"), 5),
}


@pytest.mark.parametrize("told", LATER)
def test_what_an_agent_rewrote_of_its_own_before_the_commit_is_superseded(git: Git, told: str) -> None:
    """No commit shows that such a line is gone, so that the rewrite was found in none: both were lost."""
    later, dropped = LATER[told]
    lines = [line.replace("5", "9") for line in FIRST if told != "taken out" or "5" not in line]
    git.commit(-HOUR, {"b.py": OLD})
    git.commit(60_000, {"a.py": text(*lines)})
    git.commit(40 * DAY, {"b.py": NEW})
    first, second = git.follow(change(None, text(*FIRST), session="s"), later)
    kept = [one.kept.get("head", Kept()) for one in (first, second)]
    assert (kept[0] + kept[1], first.superseded) == (Kept(len(lines), len(lines)), dropped)


ONE, TWO, THREE = "def first_one():", "def second_one():", "def third_one():"
WHOLE = {  # what was committed, in order, and what stands now of either change and is superseded
    "kept": ((ONE, TWO), (ONE, TWO, THREE), (ONE, TWO, THREE), (Kept(1, 1), 0), Kept(1, 1)),
    "kept, and lost later": ((ONE, TWO), (ONE, TWO, THREE), (ONE, THREE), (Kept(1, 0), 0), Kept(1, 1)),
    "left out": ((ONE, TWO), (ONE, THREE), (ONE, THREE), (Kept(), 1), Kept(1, 1)),
    "lost before": ((ONE, TWO), (ONE,), (ONE, THREE), (Kept(1, 0), 0), Kept(1, 1)),
}


@pytest.mark.parametrize("told", WHOLE)
def test_a_whole_file_written_anew_supersedes_of_a_commit_what_it_leaves_out(git: Git, told: str) -> None:
    """All that the session had committed of it was superseded: what was kept or lost later, in neither."""
    *commits, (kept, superseded), other = WHOLE[told]
    git.commit(-HOUR, {"a.py": text(ONE)})
    for n, lines in enumerate(commits):
        git.commit((n + 1) * HOUR, {"a.py": text(*lines)})
    git.commit(40 * DAY, {"b.py": NEW})
    written = (ONE, TWO, THREE) if TWO in commits[1] else (ONE, THREE)
    first, second = git.follow(
        change(text(ONE), text(ONE, TWO), session="s"),
        change(None, text(*written), at=90 * 60_000, key="2", session="s"),
    )
    assert (first.kept.get("head", Kept()), first.superseded) == (kept, superseded)
    assert second.kept["head"] == other


def test_short_lines_that_a_whole_file_repeats_are_not_superseded(git: Git) -> None:
    git.commit(-HOUR, {"a.py": text("a", "b")})
    git.commit(60_000, {"a.py": text("a1", "b")})
    git.commit(2 * HOUR, {"a.py": text("a1", "b", ONE)})
    git.commit(LATE, {"b.py": NEW})
    first, _ = git.follow(
        change(text("a", "b"), text("a1", "b"), session="s"),
        change(None, text("a1", "b", ONE), at=HOUR, key="2", session="s"),
    )
    assert (first.kept["head"], first.superseded) == (Kept(hunks=1, hunks_kept=1), 0)


def test_what_a_whole_file_repeats_of_somebody_else_is_not_its_own(git: Git) -> None:
    """A later edit that takes it out and is in no commit was superseded with it, and not lost."""
    git.commit(-HOUR, {"a.py": text(ONE, TWO)})
    git.commit(60_000, {"a.py": text(ONE, TWO, THREE)})
    git.commit(40 * DAY, {"b.py": NEW})
    _, second = git.follow(
        change(None, text(ONE, TWO, THREE), session="s"),
        change(text(ONE, TWO, THREE), text(ONE, THREE), at=HOUR, key="2", session="s"),
    )
    assert (second.kept["head"], second.superseded) == (Kept(deleted=1), 0)


def test_a_rewrite_that_the_log_tells_as_undone_supersedes_nothing(git: Git) -> None:
    git.commit(-HOUR, {"b.py": OLD})
    git.commit(60_000, {"a.py": text(*FIRST[1:])})
    later = change(FIRST[0], "def connected():", at=1, key="2", session="s", undone=True)
    first, second = git.follow(change(None, text(*FIRST), session="s"), later)
    assert (first.kept["head"], second.kept["head"]) == (Kept(5, 4), Kept(1, 0, 1))


def test_a_rewrite_that_was_never_committed_supersedes_nothing(git: Git) -> None:
    taken(git)
    newer = NEW.replace("second value", "rewritten value")
    first, second = git.follow(
        change(OLD, NEW, key="1", session="s"), change(NEW, newer, key="2", at=HOUR, session="s")
    )
    assert (first.superseded, first.kept["head"]) == (0, ALL)
    assert second.kept == {}
    assert second.reason == "the history ends before the change"


def test_a_rewrite_that_is_not_in_the_commit_which_the_log_names_supersedes_nothing(git: Git) -> None:
    """The user took it back, and the session's next commit took something else of the file."""
    taken(git)
    other = git.commit(2 * HOUR, {"a.py": NEW + text("def third_one():")})
    git.commit(LATE, {"b.py": text("something_else = 2")})
    newer = NEW.replace("second value", "rewritten value")
    first, second = git.follow(
        change(OLD, NEW, key="1", session="s"),
        change(NEW, newer, key="2", at=HOUR, session="s", commits=(other,)),
    )
    assert (first.superseded, first.kept["1h"]) == (0, ALL)
    assert (second.commit, second.kept["1h"]) == (other, Kept(1, 0, 1, 0))


def test_a_conflict_that_the_agent_resolved_is_taken_by_the_merge(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git("checkout", "-q", "-b", "feature")
    theirs = OLD.replace("first value", "feature value")
    git.commit(-HOUR, {"a.py": theirs, "b.py": NEW})
    git("checkout", "-q", "main")
    ours = OLD.replace("first value", "value of main")
    git.commit(-HOUR, {"a.py": ours})
    resolved = OLD.replace("first value", "value of both sides")
    git.time = T0 + 60_000
    git("merge", "-q", "-s", "ours", "--no-commit", "feature")
    merge = git.commit(60_000, {"a.py": resolved, "b.py": NEW})
    assert len(git("rev-list", "--parents", "-1", merge).split()) == 3
    git.commit(LATE, {"a.py": ours})
    conflict = OLD.replace(
        "    return 'first value'\n",
        "<<<<<<< HEAD\n    return 'value of main'\n=======\n    return 'feature value'\n>>>>>>> feature\n",
    )
    [survival] = git.follow(change(conflict, resolved))
    assert (survival.commit, survival.how) == (merge, "content")
    assert survival.kept["1h"] == survival.kept["7d"] == Kept(1, 1, 4, 4)
    assert survival.kept["head"] == Kept(1, 0, 4, 3)  # the line of main is back
    [brought] = git.follow(change(None, NEW, path="b.py", at=-HOUR))
    assert brought.commit != merge  # what a branch had is found there


def test_a_file_of_a_submodule_is_unknown(git: Git, tmp_path: Path) -> None:
    library = Git(tmp_path / "library")
    library.commit(-HOUR, {"README.md": OLD})
    git.commit(-HOUR, {"README.md": OLD})
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.folder), "vendor/library")
    git.commit(0, {})
    git.commit(40 * DAY, {"z.py": "late = 1\n"})
    [inside] = git.follow(change(OLD, NEW, path="/work/shop/vendor/library/README.md"))
    assert (inside.kept, inside.reason) == ({}, "its file is in a submodule")
    [beside] = git.follow(change(OLD, NEW, path="/work/shop/README.md"))
    assert beside.reason == "no commit took it"


def test_a_folder_that_is_called_as_a_submodule_is_the_repositorys_own(git: Git, tmp_path: Path) -> None:
    """What no commit took of its files was unknown, as if they were the submodule's."""
    library = Git(tmp_path / "library")
    library.commit(-HOUR, {"other.md": OLD})
    git.commit(-DAY, {"part/docs/a.md": OLD})
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.folder), "docs")
    git.commit(-HOUR, {})
    git.commit(40 * DAY, {"z.py": "late = 1\n"})
    own, inside = git.follow(*(change(OLD, NEW, f"/w/shop/{name}/a.md") for name in ("part/docs", "docs")))
    assert (own.reason, own.kept["7d"]) == ("no commit took it", NONE)
    assert (inside.reason, inside.kept) == ("its file is in a submodule", {})


@pytest.mark.parametrize("first", ["folder", "submodule"])
def test_a_folder_that_was_or_becomes_a_submodule(git: Git, tmp_path: Path, first: str) -> None:
    """Who made a library of a folder lost all edits in it, and of one that came back some were unknown."""
    library = Git(tmp_path / "library")
    library.commit(-DAY, {"a.py": NEW})
    add = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library.folder), "lib")
    never = change(NEW, NEW + text("def third_one():"), "lib/a.py", at=DAY, key="never")
    if first == "folder":
        git.commit(-HOUR, {"lib/a.py": OLD})
        git.commit(60_000, {"lib/a.py": NEW})
        git.commit(2 * HOUR, {"b.py": "other_value = 1\n"})
        git("rm", "-rq", "lib")
        git(*add)
        git.commit(5 * HOUR, {})
    else:
        git(*add)
        git.commit(-DAY, {})
        git("rm", "-qf", "lib")
        shutil.rmtree(git.folder / "lib", ignore_errors=True)
        git.commit(-HOUR, {"lib/a.py": OLD})
        git.commit(60_000, {"lib/a.py": NEW})
    git.commit(40 * DAY, {"b.py": "another_value = 1\n"})
    took, never_taken = git.follow(change(OLD, NEW, "lib/a.py"), never)
    if first == "folder":
        assert (took.kept, took.reason) == ({"1h": ALL}, "its file is in a submodule")
        assert (never_taken.kept, never_taken.reason) == ({}, "its file is in a submodule")
    else:
        assert set(took.kept.values()) == {ALL}
        assert (never_taken.kept["7d"], never_taken.reason) == (Kept(1), "no commit took it")


def test_a_file_written_whole_loses_what_did_not_stand_in_it(git: Git) -> None:
    git.commit(-HOUR, {"a.py": OLD})
    git.commit(40 * DAY, {"a.py": OLD + text("one_of_the_user = 1")})
    same, more = git.follow(
        change(None, OLD, "/x/a.py", key="same"), change(None, OLD + text("one_more = 1"), key="more")
    )
    assert (same.kept, same.lines) == ({}, 0)
    assert "it changes nothing" in same.reason
    assert more.kept == dict.fromkeys(("1h", "24h", "7d", "head"), Kept(1, 0))
    assert (more.lines, more.reason) == (1, "no commit took it")
    (undone,) = git.follow(change(None, OLD + text("one_more = 1"), undone=True))
    assert undone.kept["head"] == Kept(1, 0)
    (early,) = git.follow(change(None, OLD, "a.py", at=-40 * DAY))  # a new file then, and never committed
    assert early.kept["head"] == Kept(3, 0)


FUNCTIONS = [f"def function_number_{n}(): return {n}" for n in range(30)]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("told", ["old.py", "new.py"])
def test_renamed_and_edited_in_one_commit_under_either_name(git: Git, told: str, named: bool) -> None:
    git.commit(-HOUR, {"old.py": text(*FUNCTIONS)})
    less = text(*FUNCTIONS[:25], "def another_one(): pass")
    sha = git.commit(60_000, {"old.py": None, "new.py": less})
    git.commit(LATE, {"new.py": text(*FUNCTIONS, "def another_one(): pass")})
    commits = (sha,) if named else ()
    (got,) = git.follow(change(text(*FUNCTIONS), less, told, commits=commits))
    assert (got.commit, got.path) == (sha, "new.py")
    assert (got.kept["24h"], got.kept["head"]) == (Kept(1, 1, 5, 5), Kept(1, 1, 5, 0))
    (got,) = git.follow(change(None, less, told, commits=commits))  # written whole: one line was new
    assert (got.kept["24h"], got.lines) == (Kept(1, 1), 1)


def test_a_name_that_was_another_files_is_not_followed_to_where_that_went(git: Git) -> None:
    helper = "def first_helper_line(): pass"
    other = text(*FUNCTIONS, helper)
    git.commit(-90 * DAY, {"a.py": other})
    git.commit(-80 * DAY, {"a.py": None, "legacy.py": other})
    git.commit(-HOUR, {"a.py": OLD})
    git.commit(60_000, {"a.py": OLD + text(helper)})
    git.commit(2 * HOUR, {"a.py": None})
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD, OLD + text(helper)))
    assert got.kept == {"1h": Kept(1, 1), "24h": Kept(1), "7d": Kept(1), "head": Kept(1)}


def test_a_new_file_of_the_old_name_is_not_the_renamed_one(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": None, "folder/c.py": NEW + text("# more of it")})
    git.commit(3 * HOUR, {"a.py": text("from folder.c import first_one")})
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), ALL)


def test_a_rename_that_was_taken_back_is_none(git: Git) -> None:
    taken(git)
    git.commit(2 * HOUR, {"a.py": None, "c.py": NEW})
    git.commit(30 * HOUR, {"c.py": None, "a.py": NEW})
    git.commit(LATE, {"c.py": text("something_else = 1")})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == dict.fromkeys(("1h", "24h", "7d", "head"), ALL)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("before", [None, ""])
def test_a_file_that_the_agent_moved_by_writing_it_anew_is_taken(
    git: Git, before: str | None, named: bool
) -> None:
    git.commit(-HOUR, {"old.py": text(*FUNCTIONS)})
    sha = git.commit(60_000, {"old.py": None, "new.py": text(*FUNCTIONS)})
    git.commit(40 * DAY, {"b.py": OLD})
    (got,) = git.follow(change(before, text(*FUNCTIONS), "new.py", commits=(sha,) if named else ()))
    assert (got.commit, got.kept["head"]) == (sha, Kept(30, 30))


def test_a_change_of_before_the_rename_that_is_told_by_the_new_name(git: Git) -> None:
    """As on a disk that does not tell Readme.md from README.md."""
    git.commit(-HOUR, {"Readme.md": OLD})
    git.commit(60_000, {"Readme.md": NEW})
    renamed = git.commit(HOUR, {"Readme.md": None, "README.md": NEW})
    git.commit(40 * DAY, {})
    (got,) = git.follow(change(OLD, NEW, "README.md"))
    assert (got.commit, got.kept["head"]) == (renamed, ALL)


def test_of_files_that_are_equally_good_it_is_always_the_same_one(git: Git) -> None:
    folders = "abcdefghijkl"
    git.commit(-HOUR, {f"{folder}/a.py": OLD for folder in folders})
    git.commit(60_000, {f"{folder}/a.py": NEW for folder in folders})
    assert [got.path for got in git.follow(change(OLD, NEW))] == ["l/a.py"]
    git.commit(HOUR, {"a.py": OLD, "m/a.py": OLD})
    git.commit(2 * HOUR, {"a.py": NEW, "m/a.py": NEW})
    assert [got.path for got in git.follow(change(OLD, NEW, at=HOUR))] == ["a.py"]


CALL = "link = connect(host, timeout={}, retries={})"


@pytest.mark.parametrize(("later", "share"), [((60, 5), 1.0), ((60, 3), 0.5), ((30, 3), 0.0)])
def test_parts_within_a_line_are_the_change_of_their_line(
    git: Git, later: tuple[int, int], share: float
) -> None:
    """Of `timeout=60` no commit has a line: as it was told, no commit took it, which is lost in 30 days."""
    git.commit(-HOUR, {"a.py": text("import net", CALL.format(30, 3))})
    sha = git.commit(60_000, {"a.py": text("import net", CALL.format(60, 5))})
    git.commit(DAY, {"a.py": text("import net", CALL.format(*later))})
    git.commit(40 * DAY, {"b.py": OLD})
    (got,) = git.follow(change("timeout=30, retries=3", "timeout=60, retries=5"))
    assert got.commit == sha
    assert got.kept["head"].rate == share


def test_parts_within_a_line_that_the_session_changed_before(git: Git) -> None:
    git.commit(-HOUR, {"a.py": text("import net", CALL.format(30, 3))})
    sha = git.commit(60_000, {"a.py": text("import net", CALL.format(90, 3))})
    git.commit(40 * DAY, {"b.py": OLD})
    one = change("timeout=30", "timeout=60", session="s")
    first, second = git.follow(one, change("timeout=60", "timeout=90", at=1000, session="s"))
    assert (second.commit, second.kept["head"].rate) == (sha, 1.0)
    assert (first.kept["head"], first.superseded) == (Kept(deleted=1, deleted_kept=1), 1)


def test_a_template_that_was_filled_in_before_its_first_commit(git: Git) -> None:
    """What it replaced was in no commit, so that none had half of the change: all of it counted as lost."""
    template = text("# Feature: [name of it]", "**Created**: [the date]", "**Status**: [draft, done]")
    filled = text("# Feature: a shop for bread", "**Created**: 2026-01-02")
    git.commit(-HOUR, {"b.py": text("something_else = 2")})
    sha = git.commit(60_000, {"specs/1/spec.md": filled + text("**Owner**: whoever bakes")})
    git.commit(2 * HOUR, {"specs/1/spec.md": filled.replace("2026-01-02", "2026-02-03")})
    (got,) = git.follow(change(template, filled, path="specs/1/spec.md"))
    assert (got.commit, got.how, got.reason) == (sha, "content", "")
    assert got.kept == {"1h": Kept(2, 2, 3, 3), "head": Kept(2, 1, 3, 3)}


def test_what_a_commit_shows_of_a_change_comes_before_what_it_does_not(git: Git) -> None:
    """A later file with the new lines is not the one, nor are lines that say next to nothing."""
    old, new = text("first = compute(1)", "second = compute(2)"), text("the_total = compute_all_of_it()")
    git.commit(-HOUR, {"a/x.py": old})
    sha = git.commit(60_000, {"a/x.py": text("first = compute(1)") + new})  # two lines of three
    git.commit(120_000, {"b/x.py": new})
    few = change(text("value = compute(3)", "other = compute(4)"), text("return 1"), path="y.py")
    git.commit(180_000, {"y.py": text("def y():", "    return 1")})
    got, other = git.follow(change(old, new, path="a/x.py"), few)
    assert (got.commit, got.path) == (sha, "a/x.py")
    assert (other.commit, other.reason) == ("", "no commit took it so far")


def test_a_hunk_of_short_lines_stands_where_the_new_lines_do_and_the_old_ones_do_not() -> None:
    """Told by texts that no commit has, and so looked for by its hunk."""
    units = units_of(change(text("x = 1", "k = 9"), text("x = 2", "k = 9")))
    old, new = text("x = 1", "k = 8"), text("x = 2", "k = 8")
    for later, kept in ((new, 1), (text("x = 1", "x = 2"), 0), (text("k = 8"), 0), (old, 0)):
        assert _short(units, old, new, later) == Kept(hunks=1, hunks_kept=kept)
    assert _short(units, new, new, new) is None, "a commit that had it before took it not"


def test_a_commit_that_had_a_change_of_short_lines_before_took_it_not() -> None:
    units = units_of(change("x = 1\n", "x = 2\n"))
    old, new = text("x = 1", "k = 8"), text("x = 2", "k = 8")
    assert taken_whole(units, old, new)
    assert not taken_whole(units, new, new)


def test_of_moved_lines_those_that_stand_together_are_found() -> None:
    """A block ends where the other file goes on otherwise; each line counts as often as it is missing."""
    order = ["first_line_of_it()", "second_line_of_it()", "third_line_of_it()"]
    assert _blocks(order, Counter(order), text(*order[:2], "something_else()")) == Counter(order[:2])
    twice = ["again_and()"] * 2  # 8 letters each
    assert _blocks(twice * 2, Counter({twice[0]: 4}), text(*twice * 2)) == {twice[0]: 4}
    assert _blocks(twice * 2, Counter({twice[0]: 3}), text(*twice * 2)) == {twice[0]: 3}
    assert _blocks(twice, Counter({twice[0]: 2}), text(*twice)) == {}, "too little to be known again"


def test_what_a_whole_file_left_out_is_superseded_once() -> None:
    """By the file, where a commit took it; else by a later change that takes the line out."""
    for commits, superseded in (((0, 1, 2), [1, 0, 0]), ((0, None, 2), [1, 0, 1])):
        changes = [
            units_of(change(*sides, at=None, session="s"))
            for sides in ((text(ONE), text(ONE, TWO)), (None, text(ONE)), (text(ONE, TWO), text(ONE)))
        ]
        had = [({TWO: 1}, {}, {ONE: 1}), ({}, {TWO: 1}, {ONE: 1, TWO: 1}), ({}, {TWO: 1}, {ONE: 1, TWO: 1})]
        files = [
            Taken((f"c{n}", "a.py"), (Counter(put), Counter(out)), Counter(stood))
            for n, (put, out, stood) in enumerate(had)
        ]
        supersede(changes, [None if n is None else files[n] for n in commits])
        assert [one.superseded for one in changes] == superseded
        assert changes[2].deleted == ({TWO: 1} if commits[1] else {})
