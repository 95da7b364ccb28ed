"""Copies of a tree that a model's processes change while it is read."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from cursorbench.sandbox import layers, tree


def test_what_has_become_something_else_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry was looked at before it became what it is when it is opened."""
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target, source / "now a folder", source / "folder, was a file"):
        folder.mkdir()
    (source / "now a link").symlink_to("/")
    (source / "now a file").write_text("x")
    (source / "kept").write_text("kept")
    was = {
        b"now a folder": os.lstat(source / "now a link"),
        b"folder, was a file": os.lstat(source / "kept"),
        b"now a link": os.lstat(source / "now a folder"),
        b"now a file": os.lstat(source / "now a folder"),
        b"gone": os.lstat(source / "kept"),
        b"gone link": os.lstat(source / "now a link"),
        b"gone folder": os.lstat(source / "now a folder"),
        b"kept": os.lstat(source / "kept"),
    }
    entries = tree.entries
    with tree.folder(str(source)) as fd, tree.folder(str(target)) as made:
        monkeypatch.setattr(tree, "entries", lambda of: list(was.items()) if of == fd else entries(of))
        assert tree.size(fd)[1] == 1 + 5, "three folders that are none count nothing"
        layers.Merge(made, None).add(fd)
    assert [path.name for path in target.iterdir()] == ["kept"]
    assert (target / "kept").read_text() == "kept"


def test_any_other_error_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "file").write_text("x")

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "a disk that fails")

    with tree.folder(str(source)) as fd, tree.folder(str(target)) as made:
        monkeypatch.setattr(os, "open", broken)
        with pytest.raises(OSError, match="a disk that fails"):
            layers.Merge(made, None).add(fd)


def test_what_cannot_be_opened_is_no_regular_file(tmp_path: Path) -> None:
    """A socket in a file's place, and the mark "deleted" of an overlay's layer, on which opening fails."""
    with socket.socket(socket.AF_UNIX) as listener, tree.folder(str(tmp_path)) as fd:
        listener.bind(str(tmp_path / "socket"))
        names = [b"socket"]
        with contextlib.suppress(PermissionError):
            os.mknod(tmp_path / "deleted", stat.S_IFCHR | 0o600, 0)
            names.append(b"deleted")
        for name in names:
            with tree.still(tree.file(name, fd)) as opened:
                assert opened is None


def test_a_file_that_is_cut_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for its data and for the hole behind them: there is neither any more."""
    (tmp_path / "source").write_bytes(b"x" * 100)
    seek = os.lseek

    def cutting(fd: int, place: int, how: int) -> int:
        if how == os.SEEK_HOLE:
            os.truncate(tmp_path / "source", 0)
        return seek(fd, place, how)

    monkeypatch.setattr(os, "lseek", cutting)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("wb") as target:
        tree.copy_data(source.fileno(), target.fileno())
    assert (tmp_path / "target").read_bytes() == bytes(100)
