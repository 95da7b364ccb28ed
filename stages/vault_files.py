"""The vault's two files: made, opened, never half-written. What they mean is in `stages/vault.py`."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.files import sync
from stages import faults
from stages.errors import DependencyDownError, InputMissingError, IntegrityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SCHEMA = """
CREATE TABLE IF NOT EXISTS user_keys (
    user      TEXT    NOT NULL,
    epoch     INTEGER NOT NULL CHECK (epoch >= 1),
    wrapped   BLOB,
    created   INTEGER NOT NULL,
    forgotten INTEGER,
    PRIMARY KEY (user, epoch),
    CHECK ((wrapped IS NULL) = (forgotten IS NOT NULL))
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_current_key ON user_keys (user) WHERE forgotten IS NULL;
CREATE INDEX IF NOT EXISTS forgotten_keys ON user_keys (forgotten) WHERE forgotten IS NOT NULL;
"""


_LOST = (
    "restore it from a backup: without it nothing sealed so far can be read, and a new one would hide that"
)


def connect(path: Path) -> sqlite3.Connection:
    """The database at `path`, which has to be there: one made anew would open nothing, and say nothing of it.

    Raises:
        InputMissingError (5): it is not there. IntegrityError (12): it is empty, or no database.
        DependencyDownError (13): it cannot be opened.
    """
    if not path.exists():
        raise InputMissingError(f"the users' keys at {path} are missing", hint=_LOST)
    return _open(path, make=False)


def make_database(path: Path) -> bool:
    """Make the database where there is none. Whether it holds keys. Raises as `connect`."""
    db = _open(path, make=True)
    try:
        return db.execute("SELECT 1 FROM user_keys LIMIT 1").fetchone() is not None
    finally:
        db.close()


def _open(path: Path, *, make: bool) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        if not make and not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'user_keys'").fetchone():
            db.close()
            raise IntegrityError(f"{path} is empty", hint=_LOST)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(_SCHEMA)
    except sqlite3.OperationalError as error:
        raise DependencyDownError(
            f"{path} cannot be opened: {error}",
            hint="free space if the disk is full, check the disk and its mount, and run again",
        ) from error
    except sqlite3.DatabaseError as error:
        raise IntegrityError(f"{path} cannot be used: {error}", hint="restore it from a backup") from error
    return db


def write_master(path: Path) -> None:
    """Write a new master key so that after a crash there is a whole one or none."""
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, os.urandom(32))
        faults.point("vault.master.fsync.before")
        os.fsync(fd)
    finally:
        os.close(fd)
    faults.point("vault.master.rename.before")
    temporary.rename(path)
    sync(path.parent)
    faults.point("vault.master.rename.after")


def aesgcm(key: bytes) -> AESGCM:
    """The cipher of a key; its library is loaded when the first one is wanted."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
