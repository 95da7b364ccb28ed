"""A copy of the users' keys, for `rtrl keys backup`: whole, in one file, in place of the copy before it.

Made while others use the vault, whose newest keys are in its log and not in the file. It holds what the vault
holds now and nothing besides, so who is forgotten is gone with the next copy. Not for: `master.key`, which
never changes.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from cursorbench.files import sync
from stages import faults
from stages.errors import IntegrityError, UsageError
from stages.registry.schema import address
from stages.spool.pending import PENDING_PREFIX
from stages.vault import DATABASE_FILE, Vault
from stages.vault_files import connect
from stages.wording import count
from stages.workspace import Workspace

_Key = tuple[str, int, int]  # user, epoch, when it was made


def backup(root: Path, keys_dir: Path, to: Path) -> tuple[Path, int]:
    """Copy the vault in `keys_dir` of the workspace `root` to a file (or into a folder). Safe against kills.

    Returns the file, and how many users have a key in it.

    Raises:
        UsageError: (exit 2) `to` is in the workspace, in no folder, or another file than a copy.
        IntegrityError: (exit 12) the vault is damaged, lacks keys that the copy there has, or has those of
            users who are forgotten there.
        InputMissingError, DependencyDownError: as `Vault.open`.
    """
    target = _target(root, keys_dir, to)
    vault = Vault.open(keys_dir)  # finishes what a killed `forget` left, and tries the master key
    vault.close()
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(connect(keys_dir / DATABASE_FILE)) as db:
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("VACUUM INTO ?", (str(partial),))
        living, destroyed = _read(partial)
        if target.exists():
            _refuse_older(target, living, living | destroyed)
        sync(partial)
        faults.point("vault.backup.rename.before")
        if _destroyed(keys_dir) - destroyed:  # somebody was forgotten meanwhile, and that was told as done
            return backup(root, keys_dir, to)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(target.parent)
    return target, len(living)


def _target(root: Path, keys_dir: Path, to: Path) -> Path:
    path = to.expanduser().absolute()
    target = path / DATABASE_FILE if path.is_dir() else path
    database = keys_dir / DATABASE_FILE  # may be a link by itself
    if Workspace(root).holds(target) or target.resolve() == database.resolve():
        raise UsageError(
            f"{target} is inside the workspace, whose backups must hold no keys",
            hint="name a file elsewhere with --to",
        )
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="make it first")
    return target


def _read(path: Path) -> tuple[set[_Key], set[_Key]]:
    """Of a copy the keys that live, and those that were destroyed."""
    with closing(sqlite3.connect(address(path), uri=True, timeout=30)) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check(1)").fetchall()]
        if found != ["ok"]:
            raise IntegrityError(
                f"{path} is damaged: {found[0]}",
                hint="remove the file if it is an old copy; `rtrl verify --full` looks at keys/",
            )
        rows = db.execute("SELECT user, epoch, created, forgotten IS NULL FROM user_keys").fetchall()
    living = {row[:3] for row in rows if row[3]}
    return living, {row[:3] for row in rows} - living


def _destroyed(keys_dir: Path) -> set[_Key]:
    """Keys of users that were destroyed by now; those of events that waited come and go all the time."""
    with closing(connect(keys_dir / DATABASE_FILE)) as db:
        rows = db.execute("SELECT user, epoch, created FROM user_keys WHERE forgotten IS NOT NULL").fetchall()
    return {row for row in rows if not row[0].startswith(PENDING_PREFIX)}


def _refuse_older(target: Path, living: set[_Key], keys: set[_Key]) -> None:
    """Raises when the copy that would be replaced has keys that are nowhere else, or lacks what it must."""
    try:
        there, destroyed = _read(target)
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{target} is there, and no copy of keys", hint="name another file") from error
    if lost := (there | destroyed) - keys:
        raise IntegrityError(
            f"{target} has {count(len(lost), 'key')} that keys/ lacks: it may be all that is left of them",
            hint="keys/ was put back from an older copy, or is another workspace's; keep the file, and name "
            "another one",
        )
    back = {user for user, *_ in living & destroyed if not user.startswith(PENDING_PREFIX)}
    if back:
        raise IntegrityError(
            f"keys/ was put back from an older copy: {target} has {count(len(back), 'user')} as forgotten "
            "whose key is there again",
            hint="`rtrl verify` names them; `rtrl forget` each of them again, then make the copy",
        )
