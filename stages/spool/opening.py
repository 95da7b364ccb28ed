"""Opening the index: one that cannot be used is set aside in quarantine and made anew from the segments.

Such is that of a copy of a running workspace (`cp`, `tar`, `rsync`): its two files are copied one after
the other, and what moved from one to the other meanwhile is in neither. SQLite opens it all the same.
Not for: what it holds (`index.py`), how segments are read again (`recovery.py`).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stages.errors import DependencyDownError, IntegrityError
from stages.spool import segment
from stages.spool.damage import Damage
from stages.spool.index import FILE, Index
from stages.spool.recovery import recover
from stages.wording import count


def open_index(spool_dir: Path, *, locked: bool) -> Index:
    """The index. One that SQLite cannot read is made anew by who holds the writer's lock (`locked`).

    Raises:
        IntegrityError: it cannot be read and belongs to a living writer.
    """
    for folder in (segment.FOLDER, segment.QUARANTINE):
        (spool_dir / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return Index(spool_dir)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise DependencyDownError(
                f"the index {spool_dir / FILE} cannot be opened: {error}",
                hint="free space if the disk is full, check the disk and its mount, and run again",
            ) from error
        if not locked:
            raise IntegrityError(
                f"the index {spool_dir / FILE} cannot be read: {error}",
                hint="stop the gateway that writes it; the next start rebuilds it from the segments",
            ) from error
        _set_aside(spool_dir)
        return Index(spool_dir)


def put_in_order(spool_dir: Path, *, whole: bool = False) -> tuple[Index, list[Damage], str]:
    """Under the writer's lock: the index, caught up; damage found in segments; why it was made anew.

    Args:
        whole: read all of the index, too. A damaged page may lie where nobody looks for long.
    """
    index = open_index(spool_dir, locked=True)
    try:
        found = recover(spool_dir, index)
        wrong = wrong_with(index) if whole else ""
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        wrong = str(error)
    if not wrong:
        return index, found, ""
    index.close()
    _set_aside(spool_dir)
    index = Index(spool_dir)
    return index, recover(spool_dir, index), wrong


def wrong_with(index: Index) -> str:
    """What is damaged in it; "" when nothing is. Reads all of it."""
    counted = (
        "SELECT count(*) FROM segments AS s WHERE state IN ('active', 'sealed') AND generations !="
        " (SELECT count(*) FROM generations WHERE segment = s.id)"
    )
    try:
        found = str(index.rows("PRAGMA integrity_check(1)")[0][0])
        if found != "ok":
            return " ".join(found.split())
        short = index.rows(counted)[0][0]
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        return str(error)
    return f"generations that it counts of {count(short, 'segment')} are not in it" if short else ""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether SQLite says it of the file itself, not of the disk or another process."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _set_aside(spool_dir: Path) -> None:
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        if (spool_dir / name).exists():
            (spool_dir / name).rename(spool_dir / segment.QUARANTINE / name)
