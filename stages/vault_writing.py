"""What is written into the vault's database: new keys, and their end.

By a connection of its own, so that only those wait for the disk, or for another process that writes, who
want a key made or destroyed. Not for: reading keys, sealing (`stages/vault.py`).

A destroyed key is overwritten where it lay (`secure_delete`), and may lie there once more all the same: when
SQLite moves cells to a neighbouring page, their bytes stay behind in the page's free space. So the whole
database is written anew (VACUUM), and its log emptied. That this is still to be done is noted in the
transaction that destroys the key, as an odd `user_version`: whoever opens the vault after a kill goes on.
The log is emptied before as well: with a reader in the way, each attempt would leave one more copy of the
database in it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stages import faults
from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.vault_files import connect

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE = 12  # bytes
_AGAIN_S = 0.05
_EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"  # the log


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

    def forget(self, users: Iterable[str], *, rewrite: bool) -> tuple[int, int]:
        """Destroy every key of `users` at once. Returns how many of anybody's were before, and how many now.

        The database's files may still hold them: `erase`, which is noted as owed with `rewrite`.
        """
        faults.point("vault.forget.before")
        with self._transaction() as db:
            before = forgotten_keys(db)
            cursor = db.executemany(
                "UPDATE user_keys SET wrapped = NULL, forgotten = ? WHERE user = ? AND forgotten IS NULL",
                [(now_ms(), user) for user in users],
            )
            destroyed = cursor.rowcount
            if rewrite:
                version = _version(db)
                _set_version(db, version + 1 + version % 2)
        faults.point("vault.forget.after")
        return before, destroyed

    def erase(self, patience_s: float, *, rewrite: bool) -> None:
        """Empty the write-ahead log, which may still hold pages with a destroyed key.

        Args:
            rewrite: write the whole database anew before, if that is owed and nobody keeps the log from being
                emptied. Others can read meanwhile.

        Raises DependencyDownError (13): another process read or wrote in it all the time; or no disk space.
        """
        deadline = time.monotonic() + patience_s
        try:
            with closing(connect(self._path)) as db:
                # who waits for readers within SQLite keeps everybody from writing meanwhile
                db.execute("PRAGMA busy_timeout = 0")
                db.execute("PRAGMA temp_store = MEMORY")  # else VACUUM copies the living keys to /var/tmp
                version = _version(db)
                rewrite = rewrite and owes_rewrite(db)
                if rewrite:
                    _insist(db, _EMPTY, deadline)
                    _insist(db, "VACUUM", deadline)
                    faults.point("vault.rewrite.after")
                _insist(db, _EMPTY, deadline)
                faults.point("vault.empty.after")
                if rewrite:
                    _settle(db, version)
        except sqlite3.OperationalError as error:
            raise DependencyDownError(
                f"the user is forgotten, but the vault's database was not written anew: {error}",
                hint="free as much disk space as keys/vault.db takes, and run the command again; "
                "until then its old pages may still hold the key",
            ) from error

    def finish(self) -> None:
        """What a killed `forget` left undone. Where somebody is in the way, whoever opens the vault next."""
        with suppress(DependencyDownError, sqlite3.DatabaseError):
            self.erase(0.0, rewrite=True)

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
        db.execute(insert, (user, epoch, wrapped, now_ms()))


def wrap_aad(user: str, epoch: int) -> bytes:
    """What a wrapped key is bound to."""
    return f"rtrl-user-key/1:{epoch}:{user}".encode()


def forgotten_keys(db: sqlite3.Connection) -> int:
    """How many keys were ever destroyed; grows only."""
    return int(db.execute("SELECT count(*) FROM user_keys WHERE forgotten IS NOT NULL").fetchone()[0])


def owes_rewrite(db: sqlite3.Connection) -> bool:
    """Whether keys were destroyed since the database was last written anew; 0 is older than this note."""
    version = _version(db)
    return bool(version % 2) or (version == 0 and forgotten_keys(db) > 0)


def _settle(db: sqlite3.Connection, version: int) -> None:
    """Nothing is owed any more, unless a key was destroyed since `version` was read."""
    db.execute("PRAGMA busy_timeout = 30000")
    with suppress(sqlite3.OperationalError), db:  # then it is only done once more
        db.execute("BEGIN IMMEDIATE")
        if _version(db) == version:
            _set_version(db, version + 2 - version % 2)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _set_version(db: sqlite3.Connection, version: int) -> None:
    db.execute(f"PRAGMA user_version = {version}")


def _insist(db: sqlite3.Connection, statement: str, deadline: float) -> None:
    """Execute what other processes may be in the way of, until they are not."""
    while _is_busy(db, statement):
        if time.monotonic() >= deadline:
            raise DependencyDownError(
                "the user is forgotten, but another process keeps the vault's log from being emptied",
                hint="run the command again when collect, train or the gateway has moved on",
            )
        time.sleep(_AGAIN_S)


def _is_busy(db: sqlite3.Connection, statement: str) -> bool:
    try:
        row = db.execute(statement).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return True
    return row is not None and bool(row[0])
