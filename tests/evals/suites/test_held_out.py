"""New lines of a repository: split by commit date, old lines as context, data left out."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from cursorbench.errors import InputMissingError, IntegrityError
from evals.suites.held_out import documents, tip

SINCE = date(2026, 3, 1)


def git(folder: Path, *arguments: str, day: str = "2026-01-01") -> None:
    when = day if "T" in day else f"{day}T12:00:00+00:00"
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    known = {**os.environ, **who, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=known)


def commit(folder: Path, day: str, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-m", day, day=day)


OLD = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repo")
    git(folder, "init", "-b", "main")
    commit(folder, "2026-01-05", {"a.py": OLD, "same.py": "x = 1\n", "moved.py": OLD * 3})
    (folder / "moved.py").rename(folder / "there.py")
    commit(
        folder,
        "2026-03-01",
        {
            "a.py": OLD.replace("return 1", "return 10") + "\n\ndef three():\n    return 3\n",
            "neu/ü.py": "print('ü')\n",
            "data.bin": b"\0\1",
            "latin.txt": b"\xe9t\xe9\n",
            "uv.lock": "a = 1\n",
            "blank.py": "\n\n",
        },
    )
    return folder


def test_new_lines_count_and_old_ones_are_context(repository: Path) -> None:
    found = {one.path: one for one in documents(repository, SINCE, tip(repository), 10)}
    assert set(found) == {"a.py", "neu/ü.py"}  # what only moved has nothing new
    assert [(piece.text, piece.new) for piece in found["a.py"].pieces] == [
        ("def one():\n", False),
        ("    return 10\n", True),
        ("\n\ndef two():\n    return 2\n", False),
        ("\n\ndef three():\n    return 3\n", True),
    ]
    assert found["a.py"].new_bytes == len("    return 10\n\n\ndef three():\n    return 3\n")
    assert found["neu/ü.py"].new_bytes == len("print('ü')\n".encode())


def test_the_day_itself_is_held_out_and_the_day_after_is_too_late(repository: Path) -> None:
    with pytest.raises(InputMissingError, match="no new lines"):
        documents(repository, date(2026, 3, 2), tip(repository), 10)


def test_the_day_begins_with_its_first_second(tmp_path: Path) -> None:
    """Git's `--before` takes a commit of that very second too: dated by the day alone, it was no new one."""
    git(tmp_path, "init", "-q")
    commit(tmp_path, "2026-02-28T23:59:59+00:00", {"a.py": "x = 1\n"})
    commit(tmp_path, "2026-03-01T00:00:00+00:00", {"b.py": "y = 1\n"})
    assert [one.path for one in documents(tmp_path, SINCE, tip(tmp_path), 10)] == ["b.py"]
    assert [one.path for one in documents(tmp_path, date.min, tip(tmp_path), 10)] == ["a.py", "b.py"]


def test_before_the_first_commit_everything_is_new(repository: Path) -> None:
    found = documents(repository, date(2025, 1, 1), tip(repository), 10)
    assert {one.path for one in found} == {"a.py", "same.py", "there.py", "neu/ü.py"}
    assert all(piece.new for one in found for piece in one.pieces)


def test_a_limit_takes_the_same_files_every_time(repository: Path) -> None:
    some = documents(repository, date(2025, 1, 1), tip(repository), 2)
    assert len(some) == 2
    assert some == documents(repository, date(2025, 1, 1), tip(repository), 2)


def test_names_that_are_no_utf_8_and_files_that_lie_elsewhere(tmp_path: Path) -> None:
    """A report cannot hold such a name: it failed when all attempts were made. A pointer of LFS is data."""
    git(tmp_path, "init", "-b", "main")
    for name in (b"caf\xe9.py", b"caf\xea.py"):
        (tmp_path / os.fsdecode(name)).write_text("x = 1\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    commit(tmp_path, "2026-03-01", {"model.txt": pointer})
    found = documents(tmp_path, SINCE, tip(tmp_path), 10)
    assert [one.path for one in found] == [r"caf\xe9.py", r"caf\xea.py"]


def test_the_commit_is_the_one_that_was_recorded(repository: Path) -> None:
    with pytest.raises(InputMissingError, match="no new lines"):
        documents(repository, SINCE, tip(repository, "HEAD~1"), 10)


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        tip(tmp_path / "none")


def test_a_repository_that_lacks_files(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--no-local", str(repository), "partial")
    partial = tmp_path / "partial"
    for pack in (partial / ".git" / "objects" / "pack").glob("*.pack"):
        pack.chmod(0o644)
        content = pack.read_bytes()
        for index in pack.parent.glob("*"):
            index.unlink()
        subprocess.run(["git", "-C", str(partial), "unpack-objects", "-q"], input=content, check=True)
    blob = repository_blob(partial, "HEAD~1:a.py")
    (partial / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(IntegrityError, match="cannot compare"):
        documents(partial, SINCE, tip(partial), 10)


def repository_blob(folder: Path, name: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", name], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_lines_between_new_ones_are_not_new(tmp_path: Path) -> None:
    """A setting for diffs puts hunks that stand near each other into one, with the old lines between."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "diff.interHunkContext", "5")
    commit(tmp_path, "2026-01-01", {"a.py": OLD})
    new = OLD.replace("return 1", "return 11").replace("def two", "def three")
    commit(tmp_path, "2026-04-01", {"a.py": new})
    (found,) = documents(tmp_path, SINCE, tip(tmp_path), 10)
    assert [piece.text for piece in found.pieces if piece.new] == ["    return 11\n", "def three():\n"]


def test_nothing_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("* diff=theirs filter=theirs\n")
    for name in ("diff.theirs.textconv", "diff.theirs.command", "diff.external", "filter.theirs.process"):
        git(repository, "config", name, f"touch {ran}; cat")
    try:
        assert documents(repository, SINCE, tip(repository), 10)
    finally:
        for name in ("diff.theirs", "filter.theirs"):
            git(repository, "config", "--remove-section", name)
        git(repository, "config", "--unset", "diff.external")
        (repository / ".git" / "info" / "attributes").unlink()
    assert not ran.exists()
