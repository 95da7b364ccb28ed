"""What is written into the vault's database: new keys, and their end.

By a connection of its own, so that only those wait for the disk, or for another process that writes, who
want a key made or destroyed. Not for: reading keys, sealing (`stages/vault.py`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stages import faults
from stages.errors import DependencyDownError
from stages.vault_files import connect

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE = 12  # bytes
_AGAIN_S = 0.05


class Writer:
    """Of one vault. Safe to use from several threads; they wait for each other."""

    def __init__(self, database: Path, aead: AESGCM) -> None:
        self._path, self._aead = database, aead
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def make(self, users: Sequence[str]) -> None:
        """A key for each of `users` who has none, durable on return.

        Another process may have been faster: its key stays. Raises DependencyDownError (13).
        """
        faults.point("vault.create.before")
        try:
            with self._transaction() as db:
                for user in users:
                    self._insert(db, user)
        except sqlite3.OperationalError as error:
            raise DependencyDownError(
                f"cannot write a user key: {error}", hint="free some disk space under keys/"
            ) from error
        faults.point("vault.create.after")

    def forget(self, users: Iterable[str]) -> tuple[int, int]:
        """Destroy every key of `users` at once. Returns how many of anybody's were before, and how many now.

        The database's log may still hold them: `erase_log`.
        """
        faults.point("vault.forget.before")
        with self._transaction() as db:
            before = forgotten_keys(db)
            cursor = db.executemany(
                "UPDATE user_keys SET wrapped = NULL, forgotten = ? WHERE user = ? AND forgotten IS NULL",
                [(_now_ms(), user) for user in users],
            )
            destroyed = cursor.rowcount
        faults.point("vault.forget.after")
        return before, destroyed

    def erase_log(self, patience_s: float) -> None:
        """Empty the write-ahead log, which may still hold pages with the destroyed key.

        Raises DependencyDownError (13): another process read in it all the time.
        """
        deadline = time.monotonic() + patience_s
        with closing(connect(self._path)) as db:
            # who waits for readers within SQLite keeps everybody from writing meanwhile
            db.execute("PRAGMA busy_timeout = 0")
            while _log_is_busy(db):
                if time.monotonic() >= deadline:
                    raise DependencyDownError(
                        "the user is forgotten, but another process keeps the vault's log from being emptied",
                        hint="run the command again when collect, train or the gateway has moved on",
                    )
                time.sleep(_AGAIN_S)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db = self._db or connect(self._path)
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db

    def _insert(self, db: sqlite3.Connection, user: str) -> None:
        query = "SELECT max(epoch), sum(forgotten IS NULL) FROM user_keys WHERE user = ?"
        last, current = db.execute(query, (user,)).fetchone()
        if current:
            return
        epoch = (last or 0) + 1
        nonce = os.urandom(NONCE)
        wrapped = nonce + self._aead.encrypt(nonce, os.urandom(32), wrap_aad(user, epoch))
        insert = "INSERT INTO user_keys (user, epoch, wrapped, created) VALUES (?, ?, ?, ?)"
        db.execute(insert, (user, epoch, wrapped, _now_ms()))


def wrap_aad(user: str, epoch: int) -> bytes:
    """What a wrapped key is bound to."""
    return f"rtrl-user-key/1:{epoch}:{user}".encode()


def forgotten_keys(db: sqlite3.Connection) -> int:
    """How many keys were ever destroyed; grows only."""
    return int(db.execute("SELECT count(*) FROM user_keys WHERE forgotten IS NOT NULL").fetchone()[0])


def _log_is_busy(db: sqlite3.Connection) -> bool:
    try:
        return bool(db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
