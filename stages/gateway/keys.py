"""API keys: who may use the gateway. Hashed at rest; the plaintext is shown once, when a key is made.

    keys/api_keys.json   ids, names, SHA-256 of each key, what it fixes (mode 0600)
    keys/api_keys.lock   held while it is changed
    keys/default.key     the key that `rtrl init` makes, in the clear; follows its rotations

A secret is in force once its owner was told it, and not before. A key is 256 random bits, so one round of
SHA-256 is enough. It fixes the population of what is made with it: no header can say otherwise. Not for: the
files (`key_file.py`), keys that seal content (`stages/vault.py`), the admin key (made anew by `rtrl serve`).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from stages.errors import InputMissingError, RtrlError, UsageError
from stages.gateway.key_file import (
    DEFAULT_KEY,
    FILE,
    LOST,
    ApiKey,
    default_key,
    encoded,
    locked,
    read,
    replace,
)
from stages.population_config import NAME

log = logging.getLogger("rtrl.gateway")

Told = Callable[[str], None]
_FIRST = DEFAULT_KEY.partition(".")[0]

PREFIX = "rtrl-"
_RECHECK_S = 1.0
_INDEX = 16  # hexadecimal digits of a digest by which it is found, before all of it is compared


class ApiKeys:
    """The keys of a workspace; follows changes of the file within a second."""

    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / FILE
        self._keys: dict[str, list[tuple[str, str, ApiKey]]] = {}
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
        no_train: bool = False,
        told: Told = lambda _: None,
    ) -> str:
        """Make a key and return its plaintext, which is stored nowhere. `told` as in `rotate`.

        Raises:
            UsageError: there is an unrevoked key of that name, or it is none; the population is no name.
        """
        _check_population(population)
        if not name.strip():
            raise UsageError("an API key needs a name", hint="name who will use it: `rtrl keys add ide`")
        path = keys_dir / FILE
        plaintext = PREFIX + secrets.token_urlsafe(32)
        with locked(keys_dir):
            keys = read(path) if path.exists() else []
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
                no_train=no_train,
            )
            replace({path: encoded([*keys, made])}, lambda: told(plaintext))
        return plaintext

    @classmethod
    def revoke(cls, keys_dir: Path, name: str) -> None:
        """Refuse the key of that name from now on. Raises UsageError when there is none."""
        cls._change(keys_dir, name, lambda _: {"revoked": _now()})

    @classmethod
    def change(cls, keys_dir: Path, name: str, **fields: Any) -> ApiKey:
        """Set `shared`, `population`, `rate`, `burst` or `no_train` of the key of that name, from now on.

        Returns the key. Raises UsageError when there is none, or the population's name is none.
        """
        _check_population(fields.get("population", ""))
        return cls._change(keys_dir, name, lambda _: fields)

    @classmethod
    def rotate(
        cls, keys_dir: Path, name: str, *, keep_hours: float = 0.0, told: Told = lambda _: None
    ) -> str:
        """Give the key of that name a new secret and return it; the one before is taken so long.

        It stays the same key: what it has made, events of it, its population and rate. Secrets before that
        one are taken as long as was said; with `keep_hours` of 0 none is. `told` gets the secret before it is
        in force, and what it raises leaves all as it was. Raises UsageError when there is no key.
        """
        plaintext = PREFIX + secrets.token_urlsafe(32)
        until = _iso(datetime.now(UTC) + timedelta(hours=keep_hours))

        def renewed(key: ApiKey) -> dict[str, Any]:
            new: dict[str, Any] = {
                "sha256": _digest(plaintext),
                "old_sha256": "",
                "old_until": "",
                "older": (),
            }
            if keep_hours > 0:
                older = tuple(one for one in key.secrets[1:] if one[1] > _now())
                new |= {"old_sha256": key.sha256, "old_until": until, "older": older}
            return new

        cls._change(keys_dir, name, renewed, plaintext, told)
        return plaintext

    @classmethod
    def _change(
        cls,
        keys_dir: Path,
        name: str,
        of: Callable[[ApiKey], dict[str, Any]],
        plaintext: str = "",
        told: Told = lambda _: None,
    ) -> ApiKey:
        path = keys_dir / FILE
        with locked(keys_dir):
            keys = read(path)
            named = [i for i, key in enumerate(keys) if key.name == name]
            found = [i for i in named if not keys[i].revoked]
            if not found:
                text = f"the API key {name!r} is revoked" if named else f"there is no API key named {name!r}"
                raise UsageError(text, hint="`rtrl keys list` names them")
            before = keys[found[0]]
            keys[found[0]] = msgspec.structs.replace(before, **of(before))
            files = {path: encoded(keys)}
            if plaintext and _is_of(before, default_key(keys_dir), keys):
                files[keys_dir / DEFAULT_KEY] = f"{plaintext}\n".encode()
            replace(files, lambda: told(plaintext))
            return keys[found[0]]

    @classmethod
    def listed(cls, keys_dir: Path) -> list[ApiKey]:
        """All keys, oldest first. Raises InputMissingError when there is no key file."""
        return read(keys_dir / FILE)

    @classmethod
    def shared_ids(cls, keys_dir: Path) -> list[str]:
        """Ids of the keys that many people come through, also revoked ones; none without a key file."""
        if not (keys_dir / FILE).exists():
            return []
        return sorted(key.id for key in read(keys_dir / FILE) if key.shared)

    def identify(self, plaintext: str) -> ApiKey | None:
        """What is stored of a valid key, None for any other text. Compared in constant time."""
        if time.monotonic() >= self._next_check:
            self._follow()
        digest = _digest(plaintext)
        for stored, until, key in self._keys.get(digest[:_INDEX], ()):
            if hmac.compare_digest(stored, digest) and (not until or _now() < until):
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
            raise InputMissingError(f"no API keys at {self._path}", hint=LOST) from None
        # two changes may come within one tick of the file system's clock: each is another file
        stamp = (found_at.st_mtime_ns, found_at.st_ino, found_at.st_size)
        if stamp != self._stamp:
            found: dict[str, list[tuple[str, str, ApiKey]]] = {}
            for key in read(self._path):
                for digest, until in key.secrets if not key.revoked else ():
                    found.setdefault(digest[:_INDEX], []).append((digest, until, key))
            self._keys, self._stamp = found, stamp


def _is_of(key: ApiKey, default: str, keys: list[ApiKey]) -> bool:
    """Whether the first key's file is this key's: it has a secret of it, or, after a kill between the two
    files, one that is nobody's, and the key has the file's name."""
    known = {digest for one in keys for digest, _ in one.secrets}
    secret = _digest(default)
    return secret in dict(key.secrets) or (bool(default) and secret not in known and key.name == _FIRST)


def _check_population(population: str) -> None:
    if population and not NAME.fullmatch(population):
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
