"""Schema changes and backups. Explicit: nothing migrates by itself.

Not for: opening a store (`store.py` only compares versions, which needs no Alembic).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.files import sync
from stages import faults
from stages.errors import IntegrityError, StoreError, UsageError
from stages.registry.database import explained, make_engine
from stages.registry.schema import FILE, HEAD, check_schema, explain, refuse_lost, schema_version

if TYPE_CHECKING:
    from alembic.config import Config

FOLDERS = ("locks", "tmp", "objects/sha256", "trash", "logs", "backups", "scratch")
_MIGRATIONS = Path(__file__).parent / "migrations"


def alembic_config() -> Config:
    """Alembic's configuration, without an ini file."""
    from alembic.config import Config  # every command imports this module, few migrate

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


def make_folders(store_dir: Path) -> None:
    """The folders of a store that are not there. Many copies (git, S3, `rsync -m`) leave out empty ones."""
    for folder in FOLDERS:
        (store_dir / folder).mkdir(parents=True, exist_ok=True)


def create_store(store_dir: Path) -> None:
    """Folders and an empty registry at the newest schema. A store that is there is left alone."""
    make_folders(store_dir)
    path = store_dir / FILE
    if not path.exists():
        refuse_lost(path)
    if not path.exists() or schema_version(path) == "":
        _upgrade(path)


def upgrade(store_dir: Path) -> tuple[str, str, Path | None]:
    """Bring the registry to the newest schema, after a backup.

    Returns:
        Version before, version after, and the backup (None when there was nothing to do).
    """
    before = schema_version(store_dir / FILE)
    if before == HEAD:
        return before, before, None
    if before > HEAD:
        raise StoreError(
            f"the store's schema is {before}, newer than this program's {HEAD}", hint="update rtrl"
        )
    saved = backup(store_dir)
    _upgrade(store_dir / FILE)
    return before, schema_version(store_dir / FILE), saved


def _upgrade(path: Path) -> None:
    from alembic import command

    config = alembic_config()
    engine = make_engine(path, create=True)
    with explained(), engine.connect().execution_options(immediate=True) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        faults.point("db.upgrade.commit.before")
        connection.commit()
        faults.point("db.upgrade.commit.after")
    engine.dispose()


def backup(store_dir: Path, to: Path | None = None) -> Path:
    """Copy the registry while others use it (SQLite's backup): checked, durable, readable by its owner only.

    Args:
        to: the file to write, which must not be there yet, or a folder to write `registry-<time>.db` into;
            default `store/backups`.

    Raises:
        UsageError: (exit 2) there is such a file already.
        IntegrityError: (exit 12) the copy does not pass SQLite's check.
    """
    schema_version(store_dir / FILE)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    name = f"registry-{stamp}.db"
    target = store_dir / "backups" / name if to is None else to / name if to.is_dir() else to
    if os.path.lexists(target):
        raise UsageError(f"{target} is there already", hint="a backup replaces nothing: name another file")
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # says to `_sweep` that somebody writes it
        if problems := _copied(store_dir / FILE, partial):
            raise IntegrityError(f"the registry is damaged: {problems[0]}", hint="restore an older backup")
        faults.point("db.backup.fsync.before")
        os.fsync(fd)
        faults.point("db.backup.rename.before")
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    faults.point("db.backup.rename.after")
    sync(target.parent)
    return target


def _copied(source_path: Path, path: Path) -> list[str]:
    """What SQLite finds wrong with the copy that was made."""
    try:
        source = sqlite3.connect(source_path, timeout=30)
        copy = sqlite3.connect(path)
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            return _problems(copy)
        finally:
            copy.close()
            source.close()
    except sqlite3.DatabaseError as error:
        raise explain(error) from error


def _sweep(folder: Path) -> None:
    """Remove what backups left that were killed; one that is being written is locked."""
    for left in folder.glob(".registry-*.db.partial"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
            left.with_name(f"{left.name}-journal").unlink(missing_ok=True)


def check(store_dir: Path) -> list[str]:
    """What SQLite's own checks and the comparison with the models find wrong; empty when nothing.

    Raises StoreError (exit 10) where the schema is another version's, which is no damage.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlmodel import SQLModel

    import stages.registry.models  # noqa: F401  (fills the metadata)

    check_schema(store_dir / FILE)
    try:
        connection = sqlite3.connect(store_dir / FILE, timeout=30)
        try:
            problems = _problems(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        return [explain(error).message]
    engine = make_engine(store_dir / FILE)
    with explained(), engine.connect() as bound:
        context = MigrationContext.configure(bound, opts={"compare_type": False})
        problems += [f"schema differs: {item}" for item in compare_metadata(context, SQLModel.metadata)]
    return problems


def _problems(connection: sqlite3.Connection) -> list[str]:
    found = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    found += [f"row without its parent: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
    return found
