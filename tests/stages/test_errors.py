"""What the operating system and SQLite refuse becomes the user's error; what a library makes up does not."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.engine.verification import FILE as FINGERPRINT
from stages.engine.verification import read_fingerprint
from stages.errors import DependencyDownError, IntegrityError, classified, of_database, of_system
from stages.gateway import key_file as keys
from stages.linestate import STATE_FILE, LineState
from stages.registry.schema import explain
from stages.spool import codec
from stages.target import endpoint, intent


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, 13),
        (errno.EROFS, 13),
        (errno.EACCES, 13),
        (errno.EIO, 13),
        (errno.ENOENT, 2),
        (errno.EISDIR, 2),
        (errno.ENOTDIR, 2),
    ],
)
def test_the_system_refuses(number: int, code: int) -> None:
    known = of_system(OSError(number, os.strerror(number), "/some/path"))
    assert known is not None
    assert (known.code, "/some/path" in known.message) == (code, True)
    assert known.hint


@pytest.mark.parametrize(
    ("number", "limit"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.EAGAIN, "ulimit -u"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ENOMEM, "memory"),
    ],
)
def test_a_limit_that_is_reached_is_named(number: int, limit: str) -> None:
    """Permissions and mount were to be checked."""
    known = of_system(OSError(number, os.strerror(number), "/some/path"))
    assert known is not None
    assert (known.code, limit in known.hint) == (13, True)


class PanicException(BaseException):  # as PyO3 names it
    pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        PanicException(
            'spawning: Os { code: 11, kind: WouldBlock, message: "Resource temporarily unavailable" }'
        ),
    ],
)
def test_no_thread_is_no_bug(error: BaseException) -> None:
    """At a container's number of processes distill was a bug (exit 1), or ended with a traceback."""
    with pytest.raises(DependencyDownError, match="no more threads") as caught, classified():
        raise error
    assert "ulimit -u" in caught.value.hint


def test_other_panics_and_ends_pass_as_they_are() -> None:
    for error in (PanicException("index out of bounds"), KeyboardInterrupt(), SystemExit(143)):
        with pytest.raises(type(error)), classified():
            raise error


def test_a_part_of_the_store_on_another_disk_is_said_to_be_that() -> None:
    """`store/objects` as a link: its permissions and its mount were to be checked."""
    known = of_system(OSError(errno.EXDEV, os.strerror(errno.EXDEV), "store/tmp/r/out"))
    assert known is not None
    assert (known.code, "one disk" in known.hint) == (13, True)


def test_an_error_without_a_number_stays_what_it_is() -> None:
    assert of_system(OSError("the model has no tokenizer")) is None
    with pytest.raises(OSError, match="no tokenizer"), classified():
        raise OSError("the model has no tokenizer")


def test_no_memory_is_no_bug() -> None:
    """`rtrl bench power --tasks 99999999999` was a bug (exit 1), with an empty message."""
    with pytest.raises(DependencyDownError, match=r"not enough memory$"), classified():
        raise MemoryError
    with (
        pytest.raises(DependencyDownError, match=r"not enough memory .Unable to allocate 745 GiB"),
        classified(),
    ):
        raise MemoryError("Unable to allocate 745 GiB")


def test_a_registry_that_cannot_be_written_is_no_damage() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    assert isinstance(explain(error), DependencyDownError)


def test_a_database_that_is_no_registry_says_of_its_disk_and_its_bytes(tmp_path: Path) -> None:
    """The spool's index and the vault have no translator of their own everywhere."""
    path = tmp_path / "index.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(IntegrityError, match="damaged"), classified():
        sqlite3.connect(path).execute("SELECT 1 FROM generations")
    with pytest.raises(DependencyDownError, match="cannot be used"), classified():
        sqlite3.connect(tmp_path / "nowhere" / "index.db")
    with pytest.raises(sqlite3.OperationalError, match="no such table"), classified():
        sqlite3.connect(":memory:").execute("SELECT 1 FROM generations")
    full = sqlite3.OperationalError("disk I/O error")
    full.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    known = of_database(full)
    assert known is not None
    assert known.code == 13
    assert of_database(ValueError("x")) is None


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (endpoint.FILE, endpoint.read_endpoint),
        (FINGERPRINT, read_fingerprint),
        (STATE_FILE, LineState.load),
        (keys.FILE, lambda folder: keys.read(folder / keys.FILE)),
    ],
)
def test_a_file_whose_text_is_no_utf_8_is_a_damaged_one(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    """One byte that had flipped was a bug with a trace: msgspec has another error for it."""
    (tmp_path / name).write_bytes(b'{"schema": "\x80"}')
    with pytest.raises(IntegrityError):
        read(tmp_path)


def test_other_texts_that_are_no_utf_8(tmp_path: Path) -> None:
    (tmp_path / "rollback-auto.json").write_bytes(b'{"reason": "\x80"}')
    assert intent.read_intent(tmp_path, "auto") is None
    assert not codec.readable(codec.Kind.EVENT, b"\x08\0\0\0\x81\xa4user\xa1\x80")
