"""Which folders outside the workspace were given users' unsealed data: who exported what, where to.

Events of entity `export`: begun -> finished | abandoned. `begun` is on record before a byte is written,
with the users whose data it will hold, so that `rtrl forget` can always name every folder.
Not for: writing exports (`stages/train/outside/handover.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from stages import locks
from stages.registry import order
from stages.registry.models import EventRow
from stages.registry.states import record

if TYPE_CHECKING:
    from stages.registry.store import Store

ENTITY = "export"
BEGUN, FINISHED, ABANDONED = "begun", "finished", "abandoned"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Export:
    """One export as the registry knows it.

    Attributes:
        folder: where it was to stand; `partial` where it is written until it is whole.
        there: whether either of them exists now, as far as this machine can see.
    """

    id: str
    at: str
    by: str
    state: str  # begun, finished or abandoned
    experience: str  # reference
    digest: str  # of the experience
    layout: str
    folder: str
    partial: str
    there: bool
    seq: int  # of the event with which it began (`order.py`)


def begin(
    store: Store,
    export_id: str,
    *,
    by: str,
    experience: tuple[str, str],
    layout: str,
    folder: Path,
    partial: Path,
    users: Sequence[str],
) -> None:
    """Put on record what is going to be written. `experience` is reference and digest."""
    data = {
        "experience": experience[0],
        "digest": experience[1],
        "layout": layout,
        "folder": str(folder),
        "partial": str(partial),
        "users": sorted(users),
    }
    with store.write("export") as session:
        record(session, ENTITY, export_id, "", BEGUN, by=by, data=data)


def end(store: Store, export_id: str, state: str, *, by: str, data: Mapping[str, Any] | None = None) -> None:
    """Put on record that the export is whole, or that nothing is left of it."""
    with store.write("export") as session:
        record(session, ENTITY, export_id, BEGUN, state, by=by, data=data)


def of_user(store: Store, user: str) -> list[Export]:
    """Exports that hold, or were about to hold, the user's data, oldest first; abandoned ones left out."""
    found = [(export, users) for export, users in _all(store) if export.state != ABANDONED]
    return [export for export, users in found if user in users]


def before(store: Store, run_id: str, found: Sequence[Export]) -> bool:
    """Whether any of these exports had begun when the run did."""
    began = order.began(store, "run", run_id)
    return any(one.seq < began for one in found)


def partial_of(folder: Path, export_id: str) -> Path:
    """Where an export to `folder` is written until it is whole."""
    return folder.parent / f".{folder.name}.{export_id}.partial"


def lock_of(store: Store, export_id: str) -> Path:
    """The lock that an export holds while it is written."""
    return store.run_lock_path(export_id)


def sweep(store: Store, *, by: str) -> list[Export]:
    """Remove what killed exports left behind; returns them. Those still being written are left alone,
    also by an export of the workspace that this one is a copy of."""
    swept = []
    for export, _ in _all(store):
        lock = lock_of(store, export.id)
        partial = Path(export.partial)
        if partial != partial_of(Path(export.folder), export.id):
            continue  # of a registry that a stranger wrote: it could be any folder of this machine
        if export.state != BEGUN or not locks.is_free(lock) or locks.in_use(partial):
            continue
        state = settle(store, export.id, folder=Path(export.folder), partial=partial, by=by)
        if state == ABANDONED:
            swept.append(export)
        if state != BEGUN:
            lock.unlink(missing_ok=True)
    return swept


def settle(store: Store, export_id: str, *, folder: Path, partial: Path, by: str) -> str:
    """Remove what an export that was cut short left unfinished, and put on record what is there now.

    Returns finished where the folder is whole, abandoned where nothing is left; begun, and nothing goes on
    record, while something may be left that could not be removed or is not in reach.
    """
    if _is_whole(folder, export_id):
        end(store, export_id, FINISHED, by=by)
        return FINISHED
    if not partial.parent.is_dir():
        return BEGUN  # a disk that is not here now may hold it still
    shutil.rmtree(partial, ignore_errors=True)
    if os.path.lexists(partial):
        return BEGUN  # not ours to remove: it stays on the list
    end(store, export_id, ABANDONED, by=by)
    return ABANDONED


def _is_whole(folder: Path, export_id: str) -> bool:
    """Whether the folder was renamed into place before the kill."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("id") == export_id


def _all(store: Store) -> list[tuple[Export, frozenset[str]]]:
    query = select(EventRow).where(EventRow.entity == ENTITY).order_by(col(EventRow.seq))
    with store.read() as session:
        rows = [
            (row.entity_id, row.at, row.by, row.to_state, row.data, row.seq or 0)
            for row in session.exec(query)
        ]
    ends = {export_id: state for export_id, _, _, state, _, _ in rows}
    found = []
    for export_id, at, by, state, text, seq in rows:
        if state != BEGUN:
            continue
        data = json.loads(text)
        there = any(Path(data[name]).exists() for name in ("folder", "partial"))
        export = Export(
            export_id, at, by, ends[export_id], data["experience"], data["digest"], data["layout"],
            data["folder"], data["partial"], there, seq,
        )  # fmt: skip
        found.append((export, frozenset(data["users"])))
    return found
