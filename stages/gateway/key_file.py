"""The files of the API keys: read, and replaced whole. Who may use a key: `keys.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from cursorbench.files import sync
from stages import faults, locks
from stages.errors import InputMissingError, IntegrityError

FILE = "api_keys.json"
DEFAULT_KEY = "default.key"
SCHEMA = "rtrl-api-keys/1"
NO_TRAIN_SCHEMA = "rtrl-api-keys/2"  # of a file with such keys: a version that does not know them refuses it
LOCK = "api_keys.lock"
LOCK_WAIT_S = 10.0
NEWER = "a newer rtrl wrote it: use that one, or restore the file from a backup"
LOST = "restore it from a backup, or clients need new keys: `rtrl keys add NAME`"


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is stored of a key.

    Attributes:
        revoked: "" or when.
        shared: many people come through it, whose names (`user`) its holder answers for.
        population: the organisation or kind of work that its generations are of, "" for none.
        rate, burst: requests a second, and at once after a pause; None and 0 are the gateway's own, a rate
            of 0 is no limit.
        no_train: nothing that comes with it is written or trained on, whatever a request says.
        old_sha256, old_until: the secret before the last rotation, and until when it is taken too.
        older: the same of rotations before that.
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
    older: tuple[tuple[str, str], ...] = ()
    no_train: bool = False

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """(digest, until when it is taken); "" for as long as the key is, and in place of no secret."""
        return ((self.sha256, ""), (self.old_sha256, self.old_until), *self.older)

    def whose(self, user: str) -> str:
        """Who asks: `user` through a shared key, else the key, whatever it names."""
        return user if self.shared else self.id


class _Keys(msgspec.Struct):
    schema: str
    keys: list[ApiKey]


def locked(keys_dir: Path) -> AbstractContextManager[locks.FileLock]:
    """Two that change the file at once: one after the other. Only its owner looks into the folder."""
    keys_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return locks.hold(keys_dir / LOCK, what="rtrl keys", timeout=LOCK_WAIT_S, hint=locks.RUN_AGAIN)


def read(path: Path) -> list[ApiKey]:
    """The keys in the file. Raises InputMissingError: there is none; IntegrityError: it is no key file."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Keys)
    except FileNotFoundError:
        raise InputMissingError(f"no API keys at {path}", hint=LOST) from None
    except ValueError as error:
        hint = NEWER if "unknown field" in str(error) else "restore it from a backup"
        raise IntegrityError(f"{path} is no key file: {error}", hint=hint) from error
    if document.schema not in (SCHEMA, NO_TRAIN_SCHEMA):
        raise IntegrityError(f"{path} has schema {document.schema!r}, not {SCHEMA!r}", hint=NEWER)
    return document.keys


def encoded(keys: list[ApiKey]) -> bytes:
    """As the file has them."""
    schema = NO_TRAIN_SCHEMA if any(key.no_train for key in keys) else SCHEMA
    return msgspec.json.format(msgspec.json.encode(_Keys(schema, keys)), indent=2)


def replace(files: dict[Path, bytes], told: Callable[[], None]) -> None:
    """Replace the files, once `told` has returned; they are on disk beside them by then."""
    ready = {path.with_suffix(".tmp"): path for path in files}
    try:
        for temporary, path in ready.items():
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(files[path])
                file.flush()
                faults.point("keys.fsync.before")
                os.fsync(fd)
        told()
    except BaseException:
        for temporary in ready:
            temporary.unlink(missing_ok=True)
        raise
    faults.point("keys.rename.before")
    for temporary, path in ready.items():
        temporary.rename(path)
        faults.point("keys.rename.after")
    sync(path.parent)


def default_key(keys_dir: Path) -> str:
    """What is in the file with the first key in the clear; "" where there is none."""
    try:
        return (keys_dir / DEFAULT_KEY).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
