"""Which schema a registry file has, and what SQLite's errors mean. Needs nothing but `sqlite3`, so that
a command can refuse or read a store without loading the ORM.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stages.errors import DependencyDownError, IntegrityError, RtrlError, StoreError

FILE = "registry.db"
HEAD = "0001"  # the migration this program was written for; a test compares it with migrations/versions


def address(path: Path, mode: str = "ro") -> str:
    """The URI of the file at `path` for SQLite, whatever characters are in the path: a `#` or `?` left as it
    is would end the path, and another file would be opened, or made.

    Args:
        mode: ro, rw, or rwc, which also makes the file.
    """
    return f"{path.absolute().as_uri()}?mode={mode}"


def explain(error: BaseException) -> RtrlError:
    """The user's error for one of SQLite."""
    text = str(error)
    if "full" in text:
        return DependencyDownError(f"the disk of the store is full ({text})", hint="free space and run again")
    silent = ("disk I/O error", "unable to open database file", "readonly database")
    if any(words in text for words in silent):  # a full disk often says so too
        return DependencyDownError(
            f"the disk of the store does not take or give data ({text})",
            hint="free space if it is full, check the disk and its mount, and run again",
        )
    if "malformed" in text or "not a database" in text:
        return IntegrityError(
            f"the registry is damaged ({text})", hint="restore the newest file of store/backups"
        )
    if "locked" in text or "busy" in text:
        return DependencyDownError("the registry stayed busy for 30 s", hint="look for a hanging process")
    if "no such table" in text or "no such column" in text:
        return StoreError(f"the registry has another schema ({text})", hint="run `rtrl db upgrade`")
    return IntegrityError(f"the registry refused a change: {text}")


def schema_version(path: Path) -> str:
    """The migration the file is at; "" when it was never migrated.

    Raises:
        StoreError: (exit 10) no file.
        IntegrityError: (exit 12) not a database; or as `refuse_lost`.
    """
    if not path.is_file():
        refuse_lost(path)
        raise StoreError(f"no store at {path.parent}", hint="make a workspace with `rtrl init`")
    try:
        connection = sqlite3.connect(address(path), uri=True, timeout=30)
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise explain(error) from error
        row = None
    except sqlite3.DatabaseError as error:
        raise explain(error) from error
    if row is None:
        refuse_lost(path)
    return str(row[0]) if row else ""


def refuse_lost(path: Path) -> None:
    """Raise IntegrityError (exit 12) when artifacts are beside a registry that is empty or not there: a new
    one would know of none, and a backup of it would be the newest."""
    if any((path.parent / "objects" / "sha256").glob("*/*")):
        raise IntegrityError(
            f"{path} is {'empty' if path.exists() else 'not there'}, and there are artifacts beside it",
            hint="restore the newest file of store/backups: docs/registry.md says how",
        )


def check_schema(path: Path) -> None:
    """Raises StoreError (exit 10) unless the file is at exactly this program's schema."""
    found = schema_version(path)
    if found == HEAD:
        return
    older = found < HEAD
    raise StoreError(
        f"the store's schema is {found or 'none'}, this program needs {HEAD}",
        hint="run `rtrl db upgrade`" if older else "update rtrl: a newer version wrote this store",
    )
