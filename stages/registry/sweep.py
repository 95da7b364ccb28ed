"""Clearing up after processes that died. Every command that writes sweeps first.

What a kill can leave: runs that claim to run, artifacts still `writing`, an object renamed into place
and never committed, tombstoned artifacts whose folder is still there, folders in tmp/ and trash/.
A run is dead when nobody holds its lock (the kernel frees it), whatever its heartbeat says.

Order matters: an object is removed before its row is closed, so that a kill during the sweep leaves
the row for the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import update
from sqlmodel import Session, col, select

from stages import faults, locks
from stages.registry.models import ArtifactRow, RunRow
from stages.registry.objects import remove_tree
from stages.registry.publish import STORE_LOCK_S, discard
from stages.registry.runs import OPEN
from stages.registry.states import now, transition

if TYPE_CHECKING:
    from pathlib import Path

    from stages.registry.store import Store


@dataclass
class Swept:
    """What a sweep found and put right."""

    lost_runs: list[str] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    removed_objects: list[str] = field(default_factory=list)
    removed_folders: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost_runs or self.abandoned or self.removed_objects or self.removed_folders)


def sweep(store: Store) -> Swept:
    """Put right what dead processes left. Safe to call at any time, by several at once."""
    swept = Swept()
    if not _anything_left(store):
        return swept
    lock = store.lock_path("store")
    with locks.hold(lock, what="sweeping", timeout=STORE_LOCK_S, hint=locks.RUN_AGAIN):
        _end_lost_runs(store, swept)
        _abandon_unfinished(store, swept)
        _finish_removals(store, swept)
        _clear_folders(store, swept)
    return swept


def _anything_left(store: Store) -> bool:
    if _folders(store, "tmp") or _folders(store, "trash"):
        return True
    with store.read() as session:
        return bool(_open_runs(session) or _unfinished(session) or _to_remove(session))


def _open_runs(session: Session) -> list[RunRow]:
    return list(session.exec(select(RunRow).where(col(RunRow.state).in_(OPEN))).all())


def _unfinished(session: Session) -> list[ArtifactRow]:
    return list(session.exec(select(ArtifactRow).where(ArtifactRow.state == "writing")).all())


def _to_remove(session: Session) -> list[ArtifactRow]:
    query = select(ArtifactRow).where(
        ArtifactRow.state == "tombstoned", col(ArtifactRow.removed_at).is_(None)
    )
    return list(session.exec(query).all())


def is_alive(store: Store, run_id: str) -> bool:
    """Whether the process of a run still holds the run's lock."""
    return not locks.is_free(store.run_lock_path(run_id))


def _end_lost_runs(store: Store, swept: Swept) -> None:
    with store.read() as session:
        dead = [run for run in _open_runs(session) if not is_alive(store, run.id)]
    if not dead:
        return
    with store.write("sweep.runs") as session:
        for run in dead:
            row = session.get_one(RunRow, run.id)
            if row.state in OPEN:
                transition(session, RunRow, run.id, row.state, "lost", by="sweep", ended_at=now())
                swept.lost_runs.append(run.id)


def _abandon_unfinished(store: Store, swept: Swept) -> None:
    with store.read() as session:
        rows = [row for row in _unfinished(session) if not is_alive(store, row.run_id)]
    for row in rows:
        if row.digest is not None and not store.is_committed(row.digest):
            discard(store, row.digest)
            swept.removed_objects.append(row.digest)
        assert row.id is not None
        with store.write("sweep.abandon") as session:
            transition(session, ArtifactRow, row.id, "writing", "abandoned", by="sweep")
        swept.abandoned.append(row.id)


def _finish_removals(store: Store, swept: Swept) -> None:
    with store.read() as session:
        rows = _to_remove(session)
    for row in rows:
        assert row.digest is not None
        if not store.is_committed(row.digest):
            discard(store, row.digest)
            swept.removed_objects.append(row.digest)
        with store.write("sweep.removed") as session:
            session.connection().execute(
                update(ArtifactRow)
                .where(ArtifactRow.id == row.id)  # type: ignore[arg-type]
                .values(removed_at=now())
            )


def _clear_folders(store: Store, swept: Swept) -> None:
    for folder in _folders(store, "tmp"):
        if not is_alive(store, folder.name):
            if _remove(folder):  # else its run has come to its end since we looked
                swept.removed_folders.append(folder.name)
            store.run_lock_path(folder.name).unlink(missing_ok=True)
    for folder in _folders(store, "trash"):
        _remove(folder)
    for run_id in swept.lost_runs:
        store.run_lock_path(run_id).unlink(missing_ok=True)


def _folders(store: Store, name: str) -> list[Path]:
    """What lies in tmp/ or trash/; files are none of the store's (`.gitkeep`, `.DS_Store`)."""
    return sorted(path for path in (store.dir / name).iterdir() if path.is_dir())


def _remove(folder: Path) -> bool:
    faults.point("sweep.delete.before")
    was_there = remove_tree(folder)
    faults.point("sweep.delete.after")
    return was_there
