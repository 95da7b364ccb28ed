"""API keys: who may use the gateway. Hashed at rest; the plaintext is shown once, when a key is made.

    keys/api_keys.json   ids, names, SHA-256 of each key, what it fixes (mode 0600)
    keys/api_keys.lock   held while it is changed

A key is 256 random bits, so one round of SHA-256 is enough. It fixes the population of what is made with
it: no header can say otherwise. Not for: keys that seal content
(`stages/vault.py`), the admin key (made anew by each `rtrl serve`).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from stages import faults, locks
from stages.errors import InputMissingError, IntegrityError, RtrlError, UsageError
from stages.spool.segment import sync_folder

log = logging.getLogger("rtrl.gateway")

FILE = "api_keys.json"
SCHEMA = "rtrl-api-keys/1"
LOCK = "api_keys.lock"
LOCK_WAIT_S = 10.0
PREFIX = "rtrl-"
POPULATION = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # as names of lines: a population may have one
_RECHECK_S = 1.0
_LOST = "restore it from a backup, or clients need new keys: `rtrl keys add NAME`"
_INDEX = 16  # hexadecimal digits of a digest by which it is found, before all of it is compared


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a key.

    Attributes:
        revoked: "" or when.
        shared: many people come through it, whose names (`user`) its holder answers for.
        population: the organisation or kind of work that its generations are of, "" for none.
        rate, burst: requests a second, and at once after a pause; None and 0 are the gateway's own, a rate
            of 0 is no limit.
        old_sha256, old_until: the secret before the last rotation, and until when it is taken too.
    """

    id: str
    name: str
    sha256: str
    created: str
    revoked: str = ""
    shared: bool = False
    population: str = ""
    rate: float | None = None
    burst: int = 0
    old_sha256: str = ""
    old_until: str = ""


class _Keys(msgspec.Struct):
    schema: str
    keys: list[ApiKey]


class ApiKeys:
    """The keys of a workspace; follows changes of the file within a second."""

    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / FILE
        self._keys: dict[str, list[tuple[str, ApiKey]]] = {}
        self._stamp = (0, 0, 0)
        self._told = False  # that the file cannot be read
        self._next_check = 0.0
        self._refresh()

    @classmethod
    def open(cls, keys_dir: Path) -> ApiKeys:
        """The keys in `keys_dir`.

        Raises:
            InputMissingError: there is no key file.
            IntegrityError: it is not one.
        """
        return cls(keys_dir)

    @classmethod
    def create(
        cls,
        keys_dir: Path,
        name: str,
        *,
        shared: bool = False,
        population: str = "",
        rate: float | None = None,
        burst: int = 0,
    ) -> str:
        """Make a key and return its plaintext, which is stored nowhere.

        Raises:
            UsageError: there is an unrevoked key of that name, or it is none; the population is no name.
        """
        _check_population(population)
        if not name.strip():
            raise UsageError("an API key needs a name", hint="name who will use it: `rtrl keys add ide`")
        path = keys_dir / FILE
        plaintext = PREFIX + secrets.token_urlsafe(32)
        with _locked(keys_dir):
            keys = _read(path) if path.exists() else []
            if any(key.name == name and not key.revoked for key in keys):
                raise UsageError(f"there is an API key named {name!r}", hint="revoke it or take another name")
            made = ApiKey(
                f"key_{secrets.token_hex(6)}",
                name,
                _digest(plaintext),
                _now(),
                shared=shared,
                population=population,
                rate=rate,
                burst=burst,
            )
            keys.append(made)
            _write(path, keys)
        return plaintext

    @classmethod
    def revoke(cls, keys_dir: Path, name: str) -> None:
        """Refuse the key of that name from now on. Raises UsageError when there is none."""
        cls._change(keys_dir, name, revoked=_now())

    @classmethod
    def change(cls, keys_dir: Path, name: str, **fields: Any) -> ApiKey:
        """Set `shared`, `population`, `rate` or `burst` of the key of that name, from now on.

        Returns the key. Raises UsageError when there is none, or the population's name is none.
        """
        _check_population(fields.get("population", ""))
        return cls._change(keys_dir, name, **fields)

    @classmethod
    def rotate(cls, keys_dir: Path, name: str, *, keep_hours: float = 0.0) -> str:
        """Give the key of that name a new secret and return it; the one before is taken so long.

        It stays the same key: what it has made, events of it, its population and rate. Raises UsageError
        when there is none.
        """
        plaintext = PREFIX + secrets.token_urlsafe(32)
        until = datetime.now(UTC) + timedelta(hours=keep_hours)

        def renewed(key: ApiKey) -> dict[str, str]:
            old = key.sha256 if keep_hours > 0 else ""
            return {"sha256": _digest(plaintext), "old_sha256": old, "old_until": _iso(until) if old else ""}

        cls._change(keys_dir, name, renewed)
        return plaintext

    @classmethod
    def _change(
        cls, keys_dir: Path, name: str, of: Callable[[ApiKey], dict[str, str]] = lambda _: {}, **fields: Any
    ) -> ApiKey:
        path = keys_dir / FILE
        with _locked(keys_dir):
            keys = _read(path)
            named = [i for i, key in enumerate(keys) if key.name == name]
            found = [i for i in named if not keys[i].revoked]
            if not found:
                text = f"the API key {name!r} is revoked" if named else f"there is no API key named {name!r}"
                raise UsageError(text, hint="`rtrl keys list` names them")
            keys[found[0]] = msgspec.structs.replace(keys[found[0]], **fields, **of(keys[found[0]]))
            _write(path, keys)
            return keys[found[0]]

    @classmethod
    def listed(cls, keys_dir: Path) -> list[ApiKey]:
        """All keys, oldest first. Raises InputMissingError when there is no key file."""
        return _read(keys_dir / FILE)

    @classmethod
    def shared_ids(cls, keys_dir: Path) -> list[str]:
        """Ids of the keys that many people come through, also revoked ones; none without a key file."""
        if not (keys_dir / FILE).exists():
            return []
        return sorted(key.id for key in _read(keys_dir / FILE) if key.shared)

    def identify(self, plaintext: str) -> ApiKey | None:
        """What is stored of a valid key, None for any other text. Compared in constant time."""
        if time.monotonic() >= self._next_check:
            self._follow()
        digest = _digest(plaintext)
        for stored, key in self._keys.get(digest[:_INDEX], ()):
            if hmac.compare_digest(stored, digest) and (stored == key.sha256 or _now() < key.old_until):
                return key
        return None

    def _follow(self) -> None:
        """Take what the file says now. One that is gone or half written changes nothing; told once."""
        try:
            self._refresh()
        except (RtrlError, OSError) as error:
            if not self._told:
                log.warning("the API keys stay as they were: %s", error)
            self._told = True
        else:
            self._told = False

    def _refresh(self) -> None:
        self._next_check = time.monotonic() + _RECHECK_S
        try:
            found_at = self._path.stat()
        except FileNotFoundError:
            raise InputMissingError(f"no API keys at {self._path}", hint=_LOST) from None
        # two changes may come within one tick of the file system's clock: each is another file
        stamp = (found_at.st_mtime_ns, found_at.st_ino, found_at.st_size)
        if stamp != self._stamp:
            found: dict[str, list[tuple[str, ApiKey]]] = {}
            for key in _read(self._path):
                for digest in (key.sha256, key.old_sha256) if not key.revoked else ():
                    found.setdefault(digest[:_INDEX], []).append((digest, key))
            self._keys, self._stamp = found, stamp


class Salts:
    """Of the engine's prefix cache, a secret one for each population: how soon an answer comes tells nobody
    what another population has asked before."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, population: str) -> str:
        """That of a population; "" without one: what such keys ask they share."""
        return hmac.digest(self._secret, population.encode(), "sha256").hex() if population else ""


def _locked(keys_dir: Path) -> AbstractContextManager[locks.FileLock]:
    """Two that change the file at once: one after the other. Only its owner looks into the folder."""
    keys_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return locks.hold(keys_dir / LOCK, what="rtrl keys", timeout=LOCK_WAIT_S, hint=locks.RUN_AGAIN)


def _read(path: Path) -> list[ApiKey]:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Keys)
    except FileNotFoundError:
        raise InputMissingError(f"no API keys at {path}", hint=_LOST) from None
    except ValueError as error:
        raise IntegrityError(f"{path} is no key file: {error}", hint="restore it from a backup") from error
    if document.schema != SCHEMA:
        raise IntegrityError(f"{path} has schema {document.schema!r}, not {SCHEMA!r}", hint="restore it")
    return document.keys


def _write(path: Path, keys: list[ApiKey]) -> None:
    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(_Keys(SCHEMA, keys)), indent=2))
        file.flush()
        faults.point("keys.fsync.before")
        os.fsync(fd)
    faults.point("keys.rename.before")
    temporary.rename(path)
    faults.point("keys.rename.after")
    sync_folder(path.parent)


def _check_population(population: str) -> None:
    if population and not POPULATION.fullmatch(population):
        raise UsageError(
            f"{population!r} cannot name a population",
            hint="1 to 64 small letters, digits, dots, dashes and underscores, as in `acme` or `code-review`",
        )


def _digest(plaintext: str) -> str:
    return hashlib.sha256(plaintext.encode()).hexdigest()


def _now() -> str:
    return _iso(datetime.now(UTC))


def _iso(at: datetime) -> str:
    """UTC, of one width: texts are in the order of the times."""
    return at.isoformat(timespec="seconds")
