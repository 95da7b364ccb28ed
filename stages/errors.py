"""Errors only the stages raise. Base classes and the shared ones are in `cursorbench/errors.py`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from cursorbench.errors import (
    DependencyDownError,
    InputMissingError,
    IntegrityError,
    RtrlError,
    UsageError,
)

__all__ = [
    "DependencyDownError",
    "GateRejectedError",
    "InconclusiveError",
    "InputMissingError",
    "IntegrityError",
    "LockedError",
    "RolledBackError",
    "RtrlError",
    "StoreError",
    "UsageError",
    "classified",
    "of_database",
    "of_machine",
    "of_memory",
    "of_system",
]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_THREADS = "end what else runs, or raise the limit of processes (`ulimit -u`, the container's), and run again"
_HINTS = {
    errno.EXDEV: "`store` and `spool` lie on one disk each: link the whole folder, no part of it",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`), and run again",
    errno.ENFILE: "end what else has files open on this machine, and run again",
    errno.EAGAIN: _THREADS,
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`), and run again",
    errno.ENOMEM: "end what else needs memory, or raise the limit of it (`ulimit -v`), and run again",
}
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")  # Python's words, and Rust's
_UNSUITABLE = (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


class GateRejectedError(RtrlError):
    """The gate found a significant regression, or nothing that passed may be deployed."""

    code = 3
    kind = "gate_rejected"


class InconclusiveError(RtrlError):
    """The data does not decide yet: keep waiting."""

    code = 4
    kind = "inconclusive"


class LateError(RtrlError):
    """A stage used up its share of the cycle's deadline. Nothing is decided: the next cycle goes on."""

    code = 4
    kind = "late"


class StoreError(RtrlError):
    """The store is missing, or its schema is not this program's."""

    code = 10
    kind = "store"


class RolledBackError(RtrlError):
    """What was being tried on users was taken away from them, by itself."""

    code = 14
    kind = "rolled_back"


class LockedError(RtrlError):
    """Another run holds the lock. The message names the holder."""

    code = 11
    kind = "locked"


def of_system(error: OSError) -> RtrlError | None:
    """The user's error for one of the operating system; None for an OSError that a library made up."""
    if error.errno is None:
        return None
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if error.errno in _FULL:
        return DependencyDownError(f"the disk is full ({text})", hint="free space (`rtrl gc`) and run again")
    if error.errno == errno.EPIPE:
        return DependencyDownError(f"a process that this one wrote to has ended ({text})", hint="run again")
    if error.errno in _UNSUITABLE:
        return UsageError(text, hint="name a path of the right kind, in a folder that is there")
    return DependencyDownError(
        text, hint=_HINTS.get(error.errno, "check its permissions and its mount, and run again")
    )


def of_memory(error: MemoryError) -> RtrlError:
    """The user's error where Python got no memory."""
    what = f" ({error})" if str(error) else ""
    return DependencyDownError(
        f"there is not enough memory{what}", hint="end what else needs it, or ask for less, and run again"
    )


def of_database(error: BaseException) -> RtrlError | None:
    """The user's error for one of SQLite about its file or its disk; None for anything else."""
    if type(error).__module__ != "sqlite3":  # not loaded for this: a rollback has no time for it
        return None
    import sqlite3

    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF  # the rest says more of the same
    refused = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
    if code in refused | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return DependencyDownError(
            f"a database cannot be used: {error}",
            hint="free space if the disk is full, check the disk and its mount, and run again",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return IntegrityError(
            f"a database is damaged: {error}",
            hint="with `rtrl serve` stopped, `rtrl verify` says which, and makes the spool's index anew",
        )
    return None


def of_machine(error: BaseException) -> RtrlError | None:
    """The user's error for one of the machine, its limits or its disk; None for anything else."""
    if isinstance(error, OSError):
        return of_system(error)
    if isinstance(error, MemoryError):
        return of_memory(error)
    panic = type(error).__name__ == "PanicException"  # of a library in Rust: no Exception
    if (panic or isinstance(error, RuntimeError)) and any(each in str(error) for each in _NO_THREAD):
        return DependencyDownError("this machine starts no more threads", hint=_THREADS)
    return of_database(error)


@contextmanager
def classified() -> Iterator[None]:
    """Errors of the machine within become the user's; bugs pass as they are."""
    try:
        yield
    except BaseException as error:
        if (known := of_machine(error)) is None:
            raise
        raise known from error
