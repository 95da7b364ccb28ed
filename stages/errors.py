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
    "of_memory",
    "of_system",
]

_FULL = (errno.ENOSPC, errno.EDQUOT)
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
    if error.errno == errno.EXDEV:
        return DependencyDownError(
            text, hint="`store` and `spool` lie on one disk each: link the whole folder, no part of it"
        )
    if error.errno in _UNSUITABLE:
        return UsageError(text, hint="name a path of the right kind, in a folder that is there")
    return DependencyDownError(text, hint="check its permissions and its mount, and run again")


def of_memory(error: MemoryError) -> RtrlError:
    """The user's error where Python got no memory."""
    what = f" ({error})" if str(error) else ""
    return DependencyDownError(
        f"there is not enough memory{what}", hint="end what else needs it, or ask for less, and run again"
    )


def of_database(error: Exception) -> RtrlError | None:
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
            hint="`rtrl verify --full` says which; the spool's index can be removed, it is made again",
        )
    return None


@contextmanager
def classified() -> Iterator[None]:
    """Errors of the machine within become the user's; bugs pass as they are."""
    try:
        yield
    except OSError as error:
        if (known := of_system(error)) is None:
            raise
        raise known from error
    except MemoryError as error:
        raise of_memory(error) from error
    except Exception as error:
        if (known := of_database(error)) is None:
            raise
        raise known from error
