"""Keys that seal user content: AES-GCM with one key per user, wrapped by a master key file.

    keys/master.key   32 random bytes, mode 0600
    keys/vault.db     wrapped user keys (SQLite); written by a connection of its own (`vault_writing.py`)

`forget` destroys a user's keys: what was sealed for them can no longer be read, here or in any copy
of the data, while digests over the ciphertext still verify. A user who comes back gets a new key.

Not for: API keys (`stages/gateway/keys.py`), redaction of text that people see, protection from
someone who holds both files. Back the data up without `keys/`, or forgetting has no effect on the copy.
"""

from __future__ import annotations

import hmac
import os
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import InputMissingError, IntegrityError
from stages.vault_files import aesgcm, connect, make_database, write_master
from stages.vault_writing import NONCE, Writer, forgotten_keys, owes_rewrite, wrap_aad

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MASTER_FILE = "master.key"
DATABASE_FILE = "vault.db"
OVERHEAD = 1 + 4 + 12 + 16  # version, key epoch, nonce, tag
_HEADER = struct.Struct("<BI")
FORGET_S = 30.0
_RECHECK_S = 1.0  # how long a key forgotten by another process may stay in this one's memory


class UserForgottenError(IntegrityError):
    """The blob was sealed for a user who has been forgotten: it can never be read again."""

    kind = "user_forgotten"


class Vault:
    """Seals and opens bytes per user. Safe to use from several threads and processes.

    A thread that waits for the disk, or for another process that writes, keeps nobody else from sealing for
    users who have a key.
    """

    def __init__(self, keys_dir: Path, master: bytes) -> None:
        self._aead = aesgcm(master)
        self._pseudonyms = hmac.new(hmac.digest(master, b"rtrl-pseudonyms/1", "sha256"), None, "sha256")
        self._keys: dict[tuple[str, int], AESGCM] = {}
        self._current: dict[str, int] = {}
        self._lock = threading.RLock()  # never held while a file is written
        self._writer = Writer(keys_dir / DATABASE_FILE, self._aead)
        self._db = connect(keys_dir / DATABASE_FILE)  # reads
        self._seen = self._data_version()
        self._forgotten = forgotten_keys(self._db)
        self._next_check = 0.0

    @classmethod
    def create(cls, keys_dir: Path) -> Vault:
        """The vault in `keys_dir`, made when there is none.

        The database comes first: with a master key and no database it was lost, and a new one would
        pass for it.

        Raises:
            InputMissingError, IntegrityError: as `open`; or wrapped keys are there but the master key that
                opens them is not.
        """
        master, database = keys_dir / MASTER_FILE, keys_dir / DATABASE_FILE
        if not master.exists():
            keys_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            if make_database(database):
                raise IntegrityError(
                    f"{master} is missing, but {DATABASE_FILE} holds keys wrapped by it",
                    hint="restore the master key; without it nothing sealed so far can be read",
                )
            write_master(master)
        return cls.open(keys_dir)

    @classmethod
    def open(cls, keys_dir: Path) -> Vault:
        """The vault in `keys_dir`.

        Raises:
            InputMissingError: there is none, or one of its files is gone.
            IntegrityError: its master key is not 32 bytes, or does not open the wrapped keys; its database
                is empty or damaged.
        """
        path = keys_dir / MASTER_FILE
        try:
            master = path.read_bytes()
        except FileNotFoundError:
            hint = "`rtrl init` makes one; or restore it from where you keep it"
            if (keys_dir / DATABASE_FILE).exists():  # a new one would open nothing
                hint = "restore it from where you keep it; without it nothing sealed so far can be read"
            raise InputMissingError(f"no master key at {path}", hint=hint) from None
        if len(master) != 32:
            raise IntegrityError(f"{path} holds {len(master)} bytes, not 32", hint="restore the master key")
        vault = cls(keys_dir, master)
        vault._probe()
        if owes_rewrite(vault._db):
            vault._writer.finish()
        return vault

    def seal(self, user: str, plaintext: bytes, aad: bytes, *, like: bytes | None = None) -> bytes:
        """Encrypt for `user` (a key is made on first use); `aad` must be given again to open.

        With `like`, a blob of the same user, the same key is used again: content that is only moved
        must not outlive a `forget` under a new key.

        Raises:
            UserForgottenError: the key of `like` was destroyed.
        """
        if like is not None:
            epoch = _epoch(like)
            key = self._key(user, epoch)
        else:
            epoch, key = self._newest(user)
        nonce = os.urandom(NONCE)
        return _HEADER.pack(1, epoch) + nonce + key.encrypt(nonce, plaintext, aad)

    def epoch(self, user: str) -> int:
        """Which of the user's keys `seal` uses now, from 1; grows when a forgotten user comes back."""
        return self._newest(user)[0]

    def unseal(self, user: str, blob: bytes, aad: bytes) -> bytes:
        """The plaintext of `blob`.

        Raises:
            UserForgottenError: the key was destroyed.
            IntegrityError: the blob is not one of this vault, is damaged, or belongs to another user or aad.
        """
        from cryptography.exceptions import InvalidTag

        key = self._key(user, _epoch(blob))
        start = _HEADER.size
        try:
            return key.decrypt(blob[start : start + NONCE], blob[start + NONCE :], aad)
        except InvalidTag:
            raise IntegrityError(
                "a sealed record does not open with its user's key",
                hint="the record is damaged, or was moved to another user or id: quarantine it",
            ) from None

    def ensure(self, users: Iterable[str]) -> None:
        """Make the keys of `users` durable in one transaction, so that `seal` need not wait for the disk.

        Raises DependencyDownError (13): the disk takes none, or another process writes for too long.
        """
        if missing := self._without(users):
            self._writer.make(missing)
            self._without(missing)  # they are in memory now

    def pseudonym(self, data: bytes) -> str:
        """64 hex digits, equal for equal data. Without the master key no guess at the data can be checked."""
        one = self._pseudonyms.copy()  # cheaper than a new one, for which OpenSSL looks for SHA-256
        one.update(data)
        return one.hexdigest()

    def has_key(self, user: str) -> bool:
        """Whether `seal` for `user` is free of disk writes right now."""
        return user in self._current

    def forget(self, *users: str, patience_s: float = FORGET_S, rewrite: bool = True) -> int:
        """Destroy every key of `users`. Returns how many were destroyed; 0 means there was none.

        On return no byte of them is in any file of the vault, nor of those that earlier calls destroyed.

        Args:
            patience_s: with other processes, which may keep the destroyed keys in the database's log.
            rewrite: False leaves traces in the database to the next call. To remove them keeps others from
                making keys for as long as it takes to write the database anew.

        Raises DependencyDownError (13): they did for longer; or the disk takes nothing. The keys are
        destroyed then; the next `forget`, or the next `open`, goes on with their traces.
        """
        before, destroyed = self._writer.forget(users, rewrite=rewrite)
        with self._lock:
            if self._forgotten == before:  # else another process has forgotten somebody too: see `_recheck`
                self._forgotten = before + destroyed
            gone = frozenset(users)
            self._current = {user: epoch for user, epoch in self._current.items() if user not in gone}
            self._keys = {known: key for known, key in self._keys.items() if known[0] not in gone}
        self._writer.erase(patience_s, rewrite=rewrite)
        return destroyed

    def forgotten(self, user: str) -> int:
        """When what was sealed for `user` was last made unreadable (ms), 0 if never. Unwraps nothing."""
        query = "SELECT max(forgotten) FROM user_keys WHERE user = ?"
        return int(self._db.execute(query, (user,)).fetchone()[0] or 0)

    def anybody_forgotten(self) -> bool:
        """Whether any key was ever destroyed."""
        return forgotten_keys(self._db) > 0

    def users(self, prefix: str) -> list[str]:
        """Users with a living key whose name begins with `prefix`."""
        query = "SELECT user FROM user_keys WHERE substr(user, 1, ?) = ? AND forgotten IS NULL ORDER BY user"
        return [row[0] for row in self._db.execute(query, (len(prefix), prefix)).fetchall()]

    def close(self) -> None:
        """Drop keys from memory and close the database."""
        with self._lock:
            self._keys.clear()
            self._current.clear()
            self._db.close()
        self._writer.close()

    def _newest(self, user: str) -> tuple[int, AESGCM]:
        """The user's newest key and which it is; made when there is none."""
        while True:
            with self._lock:
                self._recheck()
                epoch = self._current.get(user) or self._load_current(user)
                if epoch:
                    return epoch, self._keys[user, epoch]
            self._writer.make([user])

    def _without(self, users: Iterable[str]) -> list[str]:
        """Those of `users` who have no key; the others' are in memory then."""
        with self._lock:
            self._recheck()
            return [u for u in dict.fromkeys(users) if not self._current.get(u) and not self._load_current(u)]

    def _key(self, user: str, epoch: int) -> AESGCM:
        with self._lock:
            self._recheck()
            key = self._keys.get((user, epoch))
            if key is not None:
                return key
            query = "SELECT wrapped, forgotten FROM user_keys WHERE user = ? AND epoch = ?"
            row = self._db.execute(query, (user, epoch)).fetchone()
            if row is None:
                hint = "the record belongs to another workspace, or keys/vault.db is older than the data"
                raise IntegrityError(f"the vault has no key {epoch} for a sealed record's user", hint=hint)
            if row[1] is not None:
                raise UserForgottenError("the user of this record has been forgotten", hint="skip the record")
            return self._unwrap(user, epoch, row[0])

    def _unwrap(self, user: str, epoch: int, wrapped: bytes) -> AESGCM:
        from cryptography.exceptions import InvalidTag

        try:
            raw = self._aead.decrypt(wrapped[:NONCE], wrapped[NONCE:], wrap_aad(user, epoch))
        except InvalidTag:
            raise IntegrityError(
                "the master key does not open this vault",
                hint="restore the keys/master.key that belongs to it",
            ) from None
        key = aesgcm(raw)
        self._keys[user, epoch] = key
        return key

    def _load_current(self, user: str) -> int | None:
        query = "SELECT epoch, wrapped FROM user_keys WHERE user = ? AND forgotten IS NULL"
        row = self._db.execute(query, (user,)).fetchone()
        if row is None:
            return None
        self._unwrap(user, row[0], row[1])
        self._current[user] = row[0]
        return int(row[0])

    def _probe(self) -> None:
        query = "SELECT user, epoch, wrapped FROM user_keys WHERE forgotten IS NULL LIMIT 1"
        row = self._db.execute(query).fetchone()
        if row is not None:
            self._unwrap(*row)

    def _recheck(self) -> None:
        """Drop cached keys when another process has forgotten someone."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _RECHECK_S
        version = self._data_version()
        if version == self._seen:
            return
        self._seen = version
        forgotten = forgotten_keys(self._db)
        if forgotten != self._forgotten:
            self._forgotten = forgotten
            self._keys.clear()
            self._current.clear()

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])


def _epoch(blob: bytes) -> int:
    """Which of its user's keys sealed a blob. Raises IntegrityError when it is none."""
    if len(blob) < OVERHEAD or blob[0] != 1:
        raise IntegrityError("not a sealed blob", hint="the record is damaged: quarantine it")
    return int(_HEADER.unpack_from(blob)[1])
