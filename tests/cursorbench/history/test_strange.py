"""Repositories and logs set up in another way than most: what is known of a change stays the same."""

from __future__ import annotations

import shutil
import subprocess
import tracemalloc
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import pytest

from cursorbench.builder.patch import diff, files
from cursorbench.errors import IntegrityError
from cursorbench.history import repository as repository_module
from cursorbench.history.branch import Branch
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.sessions.lines import Kept
from tests.cursorbench.history.gits import ALL, DAY, HOUR, LATE, NEW, NONE, OLD, T0, Git, change, taken, text

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
            found = {got.path: [kept.rate for kept in got.kept.values()] for got in follow(repository, wrote)}
        assert found == {"folder/a.py": [1.0] * 4, "other/b.py": [1.0] * 4}


def test_settings_and_grafts_of_a_user_do_not_count(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ended in a bug, with the second a bare repository was none; `grafts` is of git before 1.6."""
    sha = taken(git)
    last = git.commit(LATE, {"b.py": NEW})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(
        "[i18n]\nlogOutputEncoding = UTF-16\n[safe]\nbareRepository = explicit\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    git("clone", "-q", "--bare", str(git.folder), str(tmp_path / "bare"))
    (tmp_path / "bare" / "info").mkdir(exist_ok=True)
    (tmp_path / "bare" / "info" / "grafts").write_text(f"{last}\n")
    with Repository(tmp_path / "bare") as repository:
        (got,) = follow(repository, [change(OLD, NEW, commits=(sha,))])
    assert (got.commit, got.kept["7d"]) == (sha, ALL)


@pytest.mark.parametrize("setting", ["trailer.separators=#", "core.commentChar=E"])
def test_what_a_trailer_looks_like_is_no_setting(git: Git, setting: str) -> None:
    newer = f"{NEW}third_value = 4\n"
    git.commit(HOUR, {"folder/a.py": newer}, "m\n\nEntire-Checkpoint: 0123456789ab")
    git("config", *setting.split("="))
    (got,) = git.follow(change(NEW, newer, "folder/a.py", commits=("0123456789ab",)))
    assert got.how == "trailer"


def test_git_without_a_word_for_it_fetches_nothing_into_a_partial_clone(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before GIT_NO_LAZY_FETCH it fetched what it lacked, by any command that the clone's settings name."""
    told = repository_module._environment
    monkeypatch.setattr(
        repository_module,
        "_environment",
        lambda: {name: value for name, value in told().items() if name != "GIT_NO_LAZY_FETCH"},
    )
    taken(git)
    git.commit(LATE, {"b.py": OLD})
    git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git("clone", "-q", "--bare", "--filter=blob:none", f"file://{git.folder}", str(clone))
    git("-C", str(clone), "config", "protocol.ext.allow", "always")
    git("-C", str(clone), "config", "remote.origin.url", f"ext::touch {tmp_path / 'ran'}")
    with Repository(clone) as repository:
        (got,) = follow(repository, [change(OLD, NEW)])
        assert "lacks files of its history" in repository.warnings[0]
    assert (got.kept, (tmp_path / "ran").exists()) == ({}, False)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf%s", b"%s"])
def test_a_file_with_a_byte_order_mark_or_of_an_old_code_page(git: Git, data: bytes) -> None:
    """The log has the lines as they are seen: those that git has otherwise counted as lost."""
    new = text("using System.Text;", 'var größe = "5 €";', "var more = 'größer';")
    lines = new.encode("utf-8" if data.startswith(b"\xef") else "cp1252")
    (git.folder / "a.cs").write_bytes(data % (lines + 'var other = "größe";\n'.encode()))
    git.commit(60_000, {})
    (got,) = git.follow(change("", new, "a.cs"))
    assert got.kept["head"] == Kept(3, 3)


@pytest.mark.parametrize(
    "setting",
    ["noprefix=true", "context=0", "interHunkContext=5", "mnemonicPrefix=true", "orderFile=.none"],
)
def test_settings_for_diffs_do_not_count(git: Git, setting: str) -> None:
    """No change applied for who has `diff.noprefix` in ~/.gitconfig; `.none` is not there."""
    lines = [f"line {number}\n" for number in range(30)]
    base = git.commit(0, {"folder/a.py": "".join(lines), "b.py": "1\n"})
    lines[9], lines[19] = "other\n", "again\n"
    commit = git.commit(HOUR, {"folder/a.py": "".join(lines), "b.py": "2\n"})
    with Repository(git.folder) as repository:
        usual = diff(repository, base, commit, ["folder/a.py", "b.py"])
        git("config", *f"diff.{setting}".split("="))
        assert diff(repository, base, commit, ["folder/a.py", "b.py"]) == usual
    assert usual.count("@@ -") == 3


@pytest.mark.parametrize("told", ["attributes", "GIT_DIFF_OPTS"])
def test_what_else_a_user_says_of_diffs_does_not_count(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """A change of a file that the user calls binary had no lines: nothing told that a prompt had them all."""
    base = git.commit(0, {"a.py": OLD})
    commit = git.commit(HOUR, {"a.py": NEW})
    with Repository(git.folder) as repository:
        usual = diff(repository, base, commit, ["a.py"]), files(repository, base, commit)
        if told == "attributes":
            (tmp_path / "home" / "git").mkdir(parents=True)
            (tmp_path / "home" / "git" / "attributes").write_text("*.py -diff\n")
            monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
        else:
            monkeypatch.setenv("GIT_DIFF_OPTS", "-u0")
        assert (diff(repository, base, commit, ["a.py"]), files(repository, base, commit)) == usual


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


def test_a_number_without_end_in_a_diff_of_a_log_is_no_hunk_header(git: Git) -> None:
    """Python reads no number of thousands of digits; the whole collect ended with it as a bug."""
    taken(git)
    (got,) = git.follow(change(None, None, diff=f"@@ -1,{'9' * 5000} +1 @@\n+def second_one():\n"))
    assert (got.how, got.kept["head"]) == ("content", Kept(1, 1))


def test_a_file_that_became_a_link_to_its_new_name_was_renamed(git: Git) -> None:
    """As teams do to CLAUDE.md, for AGENTS.md; the change was lost with it. And back again, with more."""
    taken(git)
    (git.folder / "a.py").rename(git.folder / "all.py")
    (git.folder / "a.py").symlink_to("all.py")
    git.commit(2 * HOUR, {})
    (git.folder / "a.py").unlink()
    git.commit(2 * DAY, {"all.py": None, "a.py": NEW + text("def third_one():")})
    git.commit(LATE, {"b.py": OLD})
    git.commit(40 * DAY, {"b.py": NEW})
    by_link = change(NEW, NEW + text("def written_through_the_link():"), at=3 * HOUR)
    first, second, third = git.follow(
        change(OLD, NEW), change(NEW, NEW + text("def third_one():"), at=2 * DAY, key="2"), by_link
    )
    assert (third.kept, third.reason[:27]) == ({}, "its file is a symbolic link")
    assert (first.kept["1h"], first.kept["24h"], first.kept["7d"]) == (ALL, ALL, ALL)
    assert (second.path, second.kept["head"]) == ("a.py", Kept(1, 1))


def test_a_file_in_a_folder_is_not_the_link_of_its_name_above_it(git: Git) -> None:
    """As the AGENTS.md of a project's parts, where its own is a link: what was lost of them was unknown."""
    git.commit(-HOUR, {"CLAUDE.md": OLD, "part/AGENTS.md": OLD})
    (git.folder / "AGENTS.md").symlink_to("CLAUDE.md")
    git.commit(2 * HOUR, {})
    git.commit(40 * DAY, {"b.py": NEW})
    one, other = git.follow(change(OLD, NEW, "part/AGENTS.md"), change(OLD, NEW, "AGENTS.md", key="2"))
    assert (one.kept["head"], one.reason, other.kept) == (NONE, "no commit took it", {})


def test_a_cell_of_a_notebook_is_unknown_and_its_json_is_followed(git: Git) -> None:
    """As lines of the file the cell's source is in no commit: it counted as lost in all of them."""
    was, now = (f'{{\n "cells": [\n  "source": [\n    "frame = {n}\\n"\n  ]\n ]\n}}\n' for n in (1111, 2222))
    git.commit(-HOUR, {"a.ipynb": was})
    sha = git.commit(60_000, {"a.ipynb": now})
    git.commit(40 * DAY, {"b.py": OLD})
    cell, whole, named = git.follow(
        change(None, "frame = 2222", "a.ipynb"),
        change(was, now, "a.ipynb", key="2"),
        change("frame = 1111", "frame = 2222", "a.ipynb", key="3", commits=(sha,)),
    )
    assert whole.kept["head"] == Kept(1, 1, 1, 1)
    assert (cell.kept, named.kept, "cell" in named.reason) == ({}, {}, True)


def lfs(letter: str) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{letter * 64}\nsize 12345\n"


LONG = text(*(f"    filler_line_number_{n} = {n}" for n in range(150_000)))
TEXTLESS = {
    "LFS": (lfs("a"), lfs("b"), ""),
    "data": (f"{OLD}\0", f"{NEW}\0", ""),
    "long": (OLD + LONG, NEW + LONG, ""),
    "from then on": (OLD, f"{NEW}\0", ""),
    "after two hours": (OLD, NEW, lfs("c")),
}


@pytest.mark.parametrize("kind", TEXTLESS)
@pytest.mark.parametrize("named", [False, True])
def test_of_a_file_without_a_text_nothing_is_known(git: Git, kind: str, named: bool) -> None:
    before, after, later = TEXTLESS[kind]
    git.commit(-HOUR, {"a.py": before, "folder/a.py": OLD})
    sha = git.commit(60_000, {"a.py": after})
    if later:
        git.commit(2 * HOUR, {"a.py": later})
    git.commit(40 * DAY, {"b.py": OLD})
    commits = (sha,) if named else ()
    got, other = git.follow(
        change(OLD, NEW, "/x/a.py", commits=commits),
        change(OLD, text("never_committed = 1"), "/x/folder/a.py", key="other"),
    )
    assert got.kept == ({"1h": ALL} if later else {})
    assert "git has no text of its file here" in got.reason
    assert other.reason == "no commit took it"  # this one it has


def test_a_partial_clone_makes_nothing_lost_and_is_said(git: Git, tmp_path: Path) -> None:
    taken(git)
    git.commit(40 * DAY, {"b.py": OLD})
    git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git("clone", "-q", "--bare", "--filter=blob:none", f"file://{git.folder}", str(clone))
    git.folder.rename(tmp_path / "away")
    with Repository(clone) as repository:
        (got,) = follow(repository, [change(OLD, NEW)])
        assert "lacks files of its history" in repository.warnings[0]
    assert (got.kept, got.lines) == ({}, 4)
    assert "not in this clone" in got.reason


def test_git_is_not_asked_for_each_file_that_a_partial_clone_lacks(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git before 2.44 ends at each one, half a second of work: following took hours."""
    for n in range(20):
        git.commit(n * 60_000, {"a.py": NEW + text(f"number = {n}")})
    git("config", "uploadpack.allowFilter", "true")
    git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{git.folder}", str(tmp_path / "part"))
    begun: list[tuple[str, ...]] = []
    command = Repository._command

    def counted(self: Repository, *arguments: str) -> list[str]:
        begun.append(arguments)
        return command(self, *arguments)

    monkeypatch.setattr(Repository, "_command", counted)
    with Repository(tmp_path / "part") as repository:
        [got] = follow(repository, [change(OLD, NEW, commits=("ab" * 20,))])
        assert got.kept == {}
        assert "a partial clone?" in repository.warnings[0]
    assert begun.count(("cat-file", "--batch")) < 5


def test_a_partial_clone_without_folders_is_not_called_damaged(git: Git, tmp_path: Path) -> None:
    taken(git)
    git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git("clone", "-q", "--bare", "--filter=tree:0", f"file://{git.folder}", str(clone))
    git.folder.rename(tmp_path / "away")
    with Repository(clone) as repository, pytest.raises(IntegrityError, match="git log failed") as error:
        list(follow(repository, [change(OLD, NEW)]))
    assert "clone it without a filter" in error.value.hint


def test_a_file_of_any_size_costs_no_memory(git: Git) -> None:
    taken(git)
    with (git.folder / "a.py").open("wb") as file:
        file.truncate(256 << 20)
    git.commit(2 * HOUR, {})
    tracemalloc.start()
    try:
        (got,) = git.follow(change(OLD, NEW))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert (got.how, got.kept) == ("content", {"1h": ALL})


@pytest.mark.parametrize("merged", ["the change", "the rename"])
def test_a_file_renamed_on_one_branch_while_it_was_changed_on_another(git: Git, merged: str) -> None:
    """Which of the two branches `git log` tells first says nothing of what came after what."""
    other = text(*(f"entry_number_{n} = {n}" for n in range(9)))
    git.commit(-DAY, {"a.py": OLD + other})
    git("checkout", "-q", "-b", "feature")
    if merged == "the change":
        git.commit(60_000, {"a.py": NEW + other})
        git("checkout", "-q", "main")
    git.commit(120_000, {"a.py": None, "b.py": OLD + other})
    if merged == "the rename":
        git("checkout", "-q", "main")
        git.commit(60_000, {"a.py": NEW + other})
    git.time += 60_000
    git("merge", "-q", "--no-edit", "feature")
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD + other, NEW + other))
    assert (got.path, got.kept) == ("a.py", dict.fromkeys(EVERY, ALL))


def test_a_rename_on_a_branch_that_is_not_merged_yet_is_none(git: Git) -> None:
    """After the merge the file is the renamed one, and the new one of its name is another."""
    other = text(*(f"entry_number_{n} = {n}" for n in range(9)))
    git.commit(-DAY, {"a.py": OLD + other, "b.py": text("nobodys_file = 1")})
    changed = git.commit(60_000, {"a.py": NEW + other})
    git("checkout", "-q", "-b", "feature")
    git.commit(HOUR, {"a.py": None, "c.py": NEW + other})
    made = git.commit(2 * HOUR, {"a.py": text("something_else = 1")})
    git("checkout", "-q", "main")
    later = git.commit(3 * HOUR, {"b.py": text("nobodys_file = 2")})
    git.time += HOUR
    git("merge", "-q", "--no-edit", "feature")
    with Repository(git.folder) as repository:
        branch = Branch(repository, "HEAD")
        assert [branch.path_at(one, "a.py", changed) for one in (later, branch.head)] == ["a.py", "c.py"]
        every = [changed, made, later, branch.head]
        assert [[branch.has(one, other) for other in every] for one in every] == [
            [True, False, False, False],
            [True, True, False, False],
            [True, False, True, False],
            [True] * 4,
        ]
        assert not branch.has("", changed)


def test_two_files_that_change_names_by_way_of_a_third(git: Git) -> None:
    other = text(*(f"entry_number_{n} = {n}" for n in range(9)))
    git.commit(-DAY, {"a.py": OLD, "b.py": other})
    git.commit(60_000, {"a.py": NEW})
    git.commit(120_000, {"a.py": None, "c.py": NEW})
    git.commit(180_000, {"b.py": None, "a.py": other})
    git.commit(240_000, {"c.py": None, "b.py": NEW})
    git.commit(LATE, {})
    (got,) = git.follow(change(OLD, NEW))
    assert got.kept == dict.fromkeys(EVERY, ALL)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_one_however_its_letters_are_composed(tmp_path: Path, form: Literal["NFC", "NFD"]) -> None:
    """macOS writes two characters where git has one; a part of a line is looked for in the file, too."""
    git = Git(tmp_path / "r")
    name = normalize("NFC" if form == "NFD" else "NFD", "größe/maß für.py")
    git.commit(-HOUR, {name: OLD, "für.py": OLD})
    git.commit(60_000, {name: NEW})
    git.commit(LATE, {"b.py": "other_value = 1\n"})
    told = f"/home/ada/r/{normalize(form, name)}"
    parts = "'first value'", "'other value'"
    (whole,), (part,) = (git.follow(change(*texts, told)) for texts in ((OLD, NEW), parts))
    assert (whole.path, whole.kept["7d"]) == (name, ALL)
    assert (part.path, part.kept["7d"]) == (name, Kept(1, 1, 1, 1))


def test_a_commit_of_a_worktree_on_no_branch_is_not_lost(tmp_path: Path) -> None:
    git = Git(tmp_path / "r")
    git.commit(-HOUR, {"a.py": OLD})
    trees = [str(tmp_path / name) for name in ("tree", "removed")]
    for tree in trees:
        git("worktree", "add", "-q", "--detach", tree)
    shas = []
    for tree in trees:
        (Path(tree) / "a.py").write_text(NEW)
        git("-C", tree, "commit", "-qam", tree)
        shas.append(git("-C", tree, "rev-parse", "HEAD"))
    shutil.rmtree(trees[1])
    git.commit(LATE, {"b.py": "other_value = 1\n"})
    open_, gone = git.follow(*(change(OLD, NEW, commits=(sha,)) for sha in shas))
    assert (open_.kept, open_.reason) == ({}, "its commit is on a worktree, which is not merged")
    assert (gone.kept["1h"], gone.reason) == (NONE, "its commit is not in the history: undone")


def test_folders_in_folders_without_end(git: Git) -> None:
    """Git takes some thousands; a block that moved there is looked for in them."""
    taken(git)
    deep, told = f"{'d/' * 1_500}a.py", "commit refs/heads/main\ncommitter a <a@b> {} +0000\ndata 1\nm\n"
    file = "M 100644 inline {}\ndata {}\n{}\n"
    stream = told.format((T0 + 2 * HOUR) // 1000) + "from refs/heads/main^0\n"
    stream += "".join(file.format(path, len(data), data) for path, data in (("a.py", OLD), (deep, NEW)))
    stream += told.format((T0 + LATE) // 1000) + file.format("b.py", 1, "x")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=git.folder, input=stream.encode(), check=True)
    (got,) = git.follow(change(OLD, NEW))
    assert (got.kept["1h"], got.kept["7d"]) == (ALL, Kept(3, 3, 1, 0))
