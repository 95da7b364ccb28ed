"""Opening repositories, and what names a commit besides its SHA."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.history.beside import behind
from cursorbench.history.branch import branch_of
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.sessions.lines import Kept
from tests.cursorbench.history.gits import DAY, HOUR, T0, Git, change, text

OLD = text("import logging", "first_value = 1")
NEW = text("import logging", "first_value = 2", "second_value = 3")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    git = Git(tmp_path / "repository")
    git.commit(-HOUR, {"folder/a.py": OLD})
    git.commit(60_000, {"folder/a.py": NEW})
    return git


def test_every_form_of_a_repository_is_the_same_one(git: Git, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    git("clone", "-q", "--bare", str(git.folder), str(bare))
    found = []
    for path in (git.folder, git.folder / ".git", git.folder / "folder", bare):
        with Repository(path) as repository:
            assert not repository.warnings
            found.append(list(follow(repository, [change(OLD, NEW, "folder/a.py")])))
    assert found[0][0].kept["head"] == Kept(2, 2, 1, 1)
    assert found == [found[0]] * 4


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="is no git repository"):
        Repository(tmp_path)
    with pytest.raises(InputMissingError, match="is not there"):
        Repository(tmp_path / "nothing")


def test_why_git_cannot_read_a_repository_is_told(git: Git) -> None:
    git("config", "core.repositoryFormatVersion", "1")
    git("config", "extensions.ofTomorrow", "yes")
    with pytest.raises(InputMissingError, match=r"git cannot read .*: fatal: unknown .* extension"):
        Repository(git.folder)


def test_a_clone_that_is_fetched_into_and_stays_where_it_was_is_told(git: Git, tmp_path: Path) -> None:
    clones = {name: tmp_path / name for name in ("work", "mirror")}
    git("clone", "-q", str(git.folder), str(clones["work"]))
    git("clone", "-q", "--mirror", str(git.folder), str(clones["mirror"]))
    git.commit(HOUR, {"b.py": "other_value = 1\n"})
    for name, clone in clones.items():
        git("-C", str(clone), "fetch", "-q")
        with Repository(clone) as repository:
            assert behind(repository) == (name == "work")
    with Repository(git.folder) as repository:
        assert behind(repository) == 0


def test_an_empty_repository_has_no_head(tmp_path: Path) -> None:
    empty = Git(tmp_path / "empty")
    with Repository(empty.folder) as repository, pytest.raises(InputMissingError) as raised:
        list(follow(repository, [change(OLD, NEW)]))
    assert "no commit HEAD" in str(raised.value)
    assert "symbolic-ref" in str(raised.value.hint)


def test_a_shallow_clone_is_said_and_leaves_unknown(git: Git, tmp_path: Path) -> None:
    sha = git("rev-parse", "HEAD")
    git.commit(8 * DAY, {"b.py": "other_value = 1\n"})
    git("clone", "-q", "--depth", "1", f"file://{git.folder}", str(tmp_path / "shallow"))
    with Repository(tmp_path / "shallow") as repository:
        assert "shallow clone" in repository.warnings[0]
        (got,) = follow(repository, [change(OLD, NEW, "folder/a.py", commits=(sha,))])
    assert (got.kept, got.reason) == ({}, "a shallow clone: its commit may be older than the clone")


def test_a_missing_object_is_no_text_and_the_next_one_is_read(git: Git) -> None:
    blob = git("rev-parse", "HEAD:folder/a.py")
    (git.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with Repository(git.folder) as repository:
        assert repository.known_text(blob) is None
        assert repository.text(git("rev-parse", "HEAD~1:folder/a.py")) == OLD


def test_data_is_no_text(git: Git) -> None:
    git.commit(HOUR, {"data.bin": "a\0b"})
    with Repository(git.folder) as repository:
        assert repository.text(git("rev-parse", "HEAD:data.bin")) == ""


def test_the_environment_of_a_hook_is_not_the_repository(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Git(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    with Repository(git.folder) as repository:
        assert repository.commit("HEAD") == git("rev-parse", "HEAD")


def test_a_trailer_names_the_session_or_the_checkpoint(git: Git) -> None:
    newer = NEW + text("third_value = 4")
    git.commit(HOUR, {"folder/a.py": NEW.replace("first", "last")})
    sha = git.commit(
        2 * HOUR, {"folder/a.py": newer}, "m\n\nEntire-Checkpoint: 0123456789ab\nX-Session: s-1234"
    )
    for given in ({"session": "s-1234"}, {"commits": ("0123456789ab",)}):
        (got,) = git.follow(change(NEW, newer, "folder/a.py", at=-DAY, **given))
        assert (got.commit, got.how) == (sha, "trailer")
    # a commit that names the session but has nothing of the change did not take it
    (got,) = git.follow(change(OLD, NEW, "folder/a.py", session="s-1234"))
    assert (got.commit, got.how) == (git("rev-parse", "HEAD~2"), "content")


def test_a_note_of_git_ai_names_the_session(git: Git) -> None:
    sha = git("rev-parse", "HEAD")
    prompts = '{"prompts": {"abcdef0123456789": {"agent_id": {"id": "s-1234"}}}}'
    note = f"folder/a.py\n  abcdef0123456789 2-3\n---\n{prompts}"
    git("notes", "--ref", "ai", "add", "-m", note)
    for name in ("s-1234", "abcdef0123456789"):
        (got,) = git.follow(change(OLD, NEW, "folder/a.py", session=name))
        assert (got.commit, got.how) == (sha, "note")


def test_the_earliest_good_commit_takes_it_by_content(git: Git) -> None:
    first = git("rev-parse", "HEAD")
    git.commit(2 * HOUR, {"folder/a.py": OLD})
    git.commit(3 * HOUR, {"folder/a.py": NEW})
    assert git.follow(change(OLD, NEW, "folder/a.py"))[0].commit == first
    later = git.follow(change(OLD, NEW, "folder/a.py", at=HOUR))[0]
    assert later.committed_at == T0 + 3 * HOUR
    assert git.follow(change(OLD, NEW, "folder/a.py", at=-31 * DAY))[0].commit == ""
    assert git.follow(change(OLD, NEW, "folder/a.py", at=None))[0].commit == first


def test_half_of_the_lines_are_enough_and_less_is_not(git: Git) -> None:
    two = text("this_is_a_line = 'number one'", "this_is_a_line = 'number two'")
    sha = git.commit(HOUR, {"folder/a.py": NEW + two})
    more = two + text("a_line_nobody_has = 1", "another_line_nobody_has = 2")
    (got,) = git.follow(change(NEW, NEW + more, "folder/a.py"))
    assert (got.commit, got.kept["head"]) == (sha, Kept(4, 2))
    (got,) = git.follow(change(NEW, NEW + more + text("and_a_fifth_line = 1"), "folder/a.py"))
    assert (got.commit, got.kept, got.reason) == ("", {}, "no commit took it so far")


def test_blanks_at_the_ends_of_lines_do_not_count(git: Git) -> None:
    sha = git.commit(HOUR, {"folder/a.py": NEW + text("third_value = 4   ", "\tfourth_value = 5")})
    (got,) = git.follow(change(NEW, NEW + text("third_value = 4", "    fourth_value = 5"), "folder/a.py"))
    assert (got.commit, got.kept["head"]) == (sha, Kept(2, 2))


def test_an_octopus_and_criss_cross_history_has_one_way_for_every_commit(git: Git) -> None:
    base = git("rev-parse", "HEAD")
    tips = []
    for n in range(3):
        git("checkout", "-q", "-b", f"topic{n}", base)
        tips.append(git.commit((n + 1) * HOUR, {f"t{n}.py": "some_value = 1\n"}))
    git("checkout", "-q", "main")
    git.time = T0 + 5 * HOUR
    git("merge", "-q", "--no-ff", "-m", "octopus", "topic1", "topic2")
    git("checkout", "-q", "topic0")
    git("merge", "-q", "-m", "back", "main")
    git("checkout", "-q", "main")
    git.time = T0 + 7 * HOUR
    git("merge", "-q", "--no-ff", "-m", "last", "topic0")
    with Repository(git.folder) as repository:
        branch = branch_of(repository, "HEAD")
        octopus = git("rev-parse", "HEAD~1")
        assert len(branch.times) == 8
        for tip, landed in zip(tips, (branch.head, octopus, octopus), strict=True):
            assert branch.at(tip, T0 + 100 * DAY) == branch.head
            assert branch.at(tip, branch.times[tip]) == tip
            assert branch.at(tip, branch.times[landed]) == landed


def test_damaged_history_is_an_error(git: Git) -> None:
    shutil.rmtree(git.folder / ".git" / "objects" / git("rev-parse", "HEAD~1")[:2])
    with Repository(git.folder) as repository, pytest.raises(IntegrityError, match="git log failed"):
        list(follow(repository, [change(OLD, NEW)]))


def test_what_a_clone_is_cut_to_is_told_and_nothing_of_a_whole_one(git: Git, tmp_path: Path) -> None:
    git("config", "uploadpack.allowFilter", "true")
    found = []
    for name, *how in (("whole",), ("shallow", "--depth=1"), ("partial", "--filter=blob:none")):
        git("clone", "-q", *how, f"file://{git.folder}", str(tmp_path / name))
        for path in (tmp_path / name, tmp_path / name / "folder", tmp_path / name / ".git"):
            with Repository(path) as repository:
                found.append(repository.cut())
    assert [set(cut) for cut in found[::3]] == [set(), {"shallow"}, {"partial"}]
    assert found[::3] == found[1::3] == found[2::3]


def test_a_commit_with_all_that_was_told_around_short_lines_is_better_than_one_with_these_alone(
    git: Git,
) -> None:
    told = change(text("def first():", "    x = 1"), text("def first():", "    x = 2"), "short.py")
    git.commit(2 * HOUR, {"short.py": text("def other():", "    x = 1")})
    sha = git.commit(3 * HOUR, {"short.py": text("def other():", "    x = 2")})
    (got,) = git.follow(told)
    assert got.commit == sha
    sha = git.commit(4 * HOUR, {"short.py": text("def other():", "    x = 2", "def first():", "    x = 2")})
    (got,) = git.follow(told)
    assert (got.commit, got.kept["head"]) == (sha, Kept(hunks=1, hunks_kept=1))
