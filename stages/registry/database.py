"""The SQLite file: how it is opened, how transactions begin, and what its failures mean.

WAL, `synchronous=FULL`, foreign keys on, 30 s busy timeout. Writing transactions are BEGIN IMMEDIATE:
with deferred ones a read-then-write by several processes fails with "database is locked".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool
from sqlmodel import Session

from stages import faults
from stages.errors import DependencyDownError, IntegrityError, RtrlError, StoreError

FILE = "registry.db"
HEAD = "0001"  # the migration this program was written for; a test compares it with migrations/versions
PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=30000",
)


def make_engine(path: Path) -> Engine:
    """An engine on the file at `path`. Connects when first used; connections are not kept."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in PRAGMAS:
            connection.execute(pragma)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """One consistent view for a block."""
    with _explained(), Session(engine, expire_on_commit=False) as session:
        yield session


@contextmanager
def writing(engine: Engine, what: str = "registry") -> Iterator[Session]:
    """One writing transaction for a block: committed at its end, rolled back on any error."""
    with (
        _explained(),
        engine.connect().execution_options(immediate=True) as connection,
        Session(bind=connection, expire_on_commit=False) as session,
    ):
        session.connection()
        yield session
        session.flush()
        faults.point(f"{what}.commit.before")
        session.commit()
        faults.point(f"{what}.commit.after")


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise explain(error.orig or error) from error


def explain(error: BaseException) -> RtrlError:
    """The user's error for one of SQLite."""
    text = str(error)
    if "full" in text:
        return DependencyDownError(f"the disk of the store is full ({text})", hint="free space and run again")
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
        IntegrityError: (exit 12) not a database.
    """
    if not path.is_file():
        raise StoreError(f"no store at {path.parent}", hint="make a workspace with `rtrl init`")
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return ""
        raise explain(error) from error
    except sqlite3.DatabaseError as error:
        raise explain(error) from error
    return str(row[0]) if row else ""


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
