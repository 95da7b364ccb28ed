"""The SQLite file: how it is opened, how transactions begin, and what its failures mean.

WAL, `synchronous=FULL`, foreign keys on, 30 s busy timeout. Writing transactions are BEGIN IMMEDIATE:
with deferred ones a read-then-write by several processes fails with "database is locked".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool
from sqlalchemy.util import LRUCache
from sqlmodel import Session

from stages import faults
from stages.registry.schema import address, explain

PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=30000",
)

_COMPILED: LRUCache[Any, Any] = LRUCache(500)  # as large as SQLAlchemy's own, which each engine has


def make_engine(path: Path, *, create: bool = False) -> Engine:
    """An engine on the file at `path`. Connects when first used; connections are not kept.

    Only with `create` is the file made when it is not there: a store whose disk is away must not come back
    to find an empty registry in its place.
    """
    place, like = address(path, "rwc" if create else "rw"), _of_no_file()

    def connect() -> Any:
        return sqlite3.connect(place, uri=True, check_same_thread=False)

    # statements are compiled once in a process, not once for each store that it opens
    options = {"compiled_cache": _COMPILED}
    pool = NullPool(connect, dialect=like.dialect)
    engine = Engine(pool, like.dialect, like.url, execution_options=options)

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


@cache
def _of_no_file() -> Engine:
    """What all engines have in common: SQLAlchemy's idea of SQLite, which has seen its version."""
    engine = create_engine("sqlite://", poolclass=NullPool)
    engine.connect().close()
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """One consistent view for a block."""
    with explained(), Session(engine, expire_on_commit=False) as session:
        yield session


@contextmanager
def writing(engine: Engine, what: str = "registry") -> Iterator[Session]:
    """One writing transaction for a block: committed at its end, rolled back on any error."""
    with (
        explained(),
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
def explained() -> Iterator[None]:
    """For a block: errors of the database are the user's."""
    try:
        yield
    except DatabaseError as error:
        raise explain(error.orig or error) from error
