"""What a bundle holds, and what it leaves behind."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.tasks import bundle
from tests.cursorbench import suites


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits; the last one is the future."""
    path = suites.make_repository(tmp_path / "repo")
    for n in range(2):
        suites.put(path, {"n.txt": f"{n}\n"})
        suites.git(path, "add", "-A")
        suites.commit(path, f"n {n}")
    suites.git(path, "tag", "v1")
    return path


def objects(path: Path) -> set[str]:
    listed = suites.git(path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(listed.split())


@pytest.mark.parametrize("depth", [0, 1])
def test_the_future_stays_behind(repository: Path, tmp_path: Path, depth: int) -> None:
    base = suites.git(repository, "rev-parse", "HEAD~1").strip()
    later = {suites.git(repository, "rev-parse", name).strip() for name in ("HEAD", "HEAD:n.txt", "HEAD:")}
    tree = bundle.write(repository, base, tmp_path / "r.bundle", depth=depth)
    bundle.checkout(tmp_path / "r.bundle", tmp_path / "out", tree=tree)
    kept = objects(tmp_path / "out")
    assert base in kept
    assert not later & kept
    assert bundle.head(tmp_path / "r.bundle") == base
    assert suites.git(tmp_path / "out", "tag") == ""
    assert (tmp_path / "out" / "n.txt").read_text() == "0\n"
    assert len(suites.git(tmp_path / "out", "log", "--format=%h").split()) == (1 if depth else 2)
    assert suites.git(tmp_path / "out", "fsck", "--full") == ""


def test_a_shallow_clone_is_a_source_too(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    suites.git(tmp_path, "clone", "-q", "--depth=2", repository.as_uri(), str(clone))
    base = suites.git(clone, "rev-parse", "HEAD").strip()
    bundle.write(clone, base, tmp_path / "r.bundle")
    bundle.checkout(tmp_path / "r.bundle", tmp_path / "out")
    assert len(suites.git(tmp_path / "out", "log", "--format=%h").split()) == 2


def test_what_is_not_there(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="has no commit 1111"):
        bundle.write(repository, "1" * 40, tmp_path / "r.bundle")
    base = suites.git(repository, "rev-parse", "HEAD").strip()
    bundle.write(repository, base, tmp_path / "r.bundle")
    with pytest.raises(IntegrityError, match="is of the tree"):
        bundle.checkout(tmp_path / "r.bundle", tmp_path / "out", tree="1" * 40)
    content = bytearray((tmp_path / "r.bundle").read_bytes())
    content[-40] ^= 1
    (tmp_path / "r.bundle").write_bytes(content)
    with pytest.raises(IntegrityError, match="cannot be checked out"):
        bundle.checkout(tmp_path / "r.bundle", tmp_path / "again")


def test_a_bundle_that_was_cut_or_changed(repository: Path, tmp_path: Path) -> None:
    """`rtrl bench show` said nothing of it, and the run ended at that task."""
    made = tmp_path / "r.bundle"
    bundle.write(repository, suites.git(repository, "rev-parse", "HEAD").strip(), made)
    bundle.assert_whole(made)
    data = made.read_bytes()
    for damaged in (data[:-1], data[: data.find(b"PACK")], data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]):
        made.write_bytes(damaged)
        bundle.head(made)
        with pytest.raises(IntegrityError, match="is damaged"):
            bundle.assert_whole(made)


def test_a_users_attributes_do_not_count(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their usual place is read without any setting, and made other line ends, under one digest."""
    suites.put(tmp_path / "home", {"git/attributes": "* text eol=crlf\n"})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    base = suites.git(repository, "rev-parse", "HEAD").strip()
    tree = bundle.write(repository, base, tmp_path / "r.bundle")
    bundle.checkout(tmp_path / "r.bundle", tmp_path / "out", tree=tree)
    assert (tmp_path / "out" / "n.txt").read_bytes() == b"1\n"


def test_git_without_a_word_for_it_fetches_nothing_from_elsewhere(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before GIT_NO_LAZY_FETCH it fetched what a clone lacks, by any command that its settings name."""
    clone = tmp_path / "clone"
    bundle.git(tmp_path, "init", "-q", str(clone))
    tree = "1" * 40
    lost = f"tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nm\n"
    (tmp_path / "commit").write_text(lost)
    commit = bundle.git(
        clone, "hash-object", "-t", "commit", "-w", "--literally", str(tmp_path / "commit")
    ).strip()
    for name, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "protocol.ext.allow": "always",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch {tmp_path / 'ran'}",
    }.items():
        bundle.git(clone, "config", name, value)
    known = subprocess.run

    def old_git(command: list[str], **how: Any) -> Any:
        how["env"] = {name: value for name, value in how["env"].items() if name != "GIT_NO_LAZY_FETCH"}
        return known(command, **how)

    monkeypatch.setattr(bundle.subprocess, "run", old_git)
    with pytest.raises(InputMissingError):
        bundle.write(clone, commit, tmp_path / "a.bundle")
    assert not (tmp_path / "ran").exists()
