"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursorbench.files import sync, write_whole


@pytest.mark.parametrize(("private", "mode"), [(False, 0o640), (True, 0o600)])
def test_a_file_is_replaced_whole(tmp_path: Path, private: bool, mode: int) -> None:
    path, seen = tmp_path / "a.json", []

    @contextmanager
    def renaming() -> Iterator[None]:
        seen.append(path.read_bytes())
        yield
        seen.append(path.read_bytes())

    path.write_bytes(b"old")
    before = os.umask(0o027)
    try:
        write_whole(path, b"new", private=private, renaming=renaming())
    finally:
        os.umask(before)
    assert seen == [b"old", b"new"]
    assert path.stat().st_mode & 0o777 == mode
    assert list(tmp_path.iterdir()) == [path]


def test_what_does_not_come_to_its_end_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.json"
    write_whole(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == {path: b"old"}
    write_whole(path, b"a cache", durable=False)
    assert path.read_bytes() == b"a cache"


def test_files_and_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    (tmp_path / "a").write_bytes(b"")
    sync(tmp_path / "a")
    sync(tmp_path)
    assert synced == [str(tmp_path / "a"), str(tmp_path)]


def test_a_folder_that_cannot_be_synced_is_as_durable_as_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PostgreSQL and SQLite have it; a file, or a disk that fails, is another matter."""
    file, failing = tmp_path / "a", errno.EINVAL
    file.write_bytes(b"a")

    def no_sync(_: int) -> None:
        raise OSError(failing, "refused")

    monkeypatch.setattr(os, "fsync", no_sync)
    sync(tmp_path)
    with pytest.raises(OSError, match=rf"refused.*{file}"):
        sync(file)
    failing = errno.EIO
    with pytest.raises(OSError, match=rf"refused.*{tmp_path}"):
        sync(tmp_path)
