"""The publish protocol. A SIGKILL at any instant leaves either the old world or the new one.

    1  insert the artifacts as `writing`                                   (transaction)
    2  the run has written its files under tmp/<run>/out/<name>/
    3  fsync files, manifest, folders; digest = sha256 of the manifest
    4  note the digests, so that a sweep knows which objects may be left   (transaction)
    5  under the store's lock: rename into objects/, fsync the parents,
       then commit artifacts, their edges and the end of the run together  (transaction)

Not for: what happens after a kill between these steps; see `sweep.py`.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, update
from sqlmodel import Session, select

from cursorbench.files import sync
from stages import faults, locks
from stages.errors import IntegrityError
from stages.registry.canonical import canonical
from stages.registry.models import ArtifactRow, RunOutputRow
from stages.registry.objects import Sealed, object_path, put_aside, remove_tree, seal
from stages.registry.runs import end_run
from stages.registry.states import now, transition
from stages.stage import Artifact, Output

if TYPE_CHECKING:
    from stages.registry.store import Store

REFERENCE = "output:"  # a meta value "output:NAME" becomes the digest of the run's output NAME
STORE_LOCK_S = 120.0


def publish(
    store: Store,
    run_id: str,
    line: str,
    outputs: Mapping[str, Output],
    out_dir: Path,
    *,
    state: str = "succeeded",
    metrics: Mapping[str, Any] | None = None,
    warnings: list[str] | None = None,
) -> dict[str, Artifact]:
    """Publish `out_dir/<name>` for every output and end the run in `state`, in one transaction.

    A meta value `output:NAME` stands for the digest of the run's own output NAME.

    Returns:
        The committed artifacts by name. An output whose content exists already is that artifact.

    Raises:
        IntegrityError: (exit 12) an output is missing or is not made of plain files.
        DependencyDownError: (exit 13) the disk is full.
    """
    order = _in_order(outputs)
    ids = _insert(store, run_id, line, {name: outputs[name] for name in order})
    sealed: dict[str, Sealed] = {}
    metas: dict[str, dict[str, Any]] = {}
    for name in order:
        output = outputs[name]
        metas[name] = _resolve_meta(output.meta, sealed)
        sealed[name] = seal(out_dir / name, kind=output.kind, line=line, meta=metas[name], base=output.base)
    _note_digests(store, ids, sealed, metas)
    lock = store.lock_path("store")
    with locks.hold(lock, what="publishing", timeout=STORE_LOCK_S, run=run_id, hint=locks.RUN_AGAIN):
        for name in order:
            _place(store, out_dir / name, sealed[name].digest)
        with store.write("publish") as session:
            for name in order:
                _commit(session, run_id, name, ids[name], sealed[name])
            end_run(session, run_id, state, metrics=metrics, warnings=warnings)
    return store.outputs_by_name(run_id)


def _references(meta: Mapping[str, Any]) -> list[str]:
    return [
        value.removeprefix(REFERENCE)
        for value in meta.values()
        if isinstance(value, str) and value.startswith(REFERENCE)
    ]


def _in_order(outputs: Mapping[str, Output]) -> list[str]:
    """Names of the outputs, those referred to before those that refer to them."""
    order: list[str] = []
    waiting = dict(outputs)
    while waiting:
        ready = [n for n, output in waiting.items() if all(r in order for r in _references(output.meta))]
        if not ready:
            raise IntegrityError(f"outputs {sorted(waiting)} refer to each other or to one that is not there")
        order += ready
        for name in ready:
            del waiting[name]
    return order


def _resolve_meta(meta: Mapping[str, Any], sealed: Mapping[str, Sealed]) -> dict[str, Any]:
    return {
        key: sealed[value.removeprefix(REFERENCE)].digest
        if isinstance(value, str) and value.startswith(REFERENCE)
        else value
        for key, value in meta.items()
    }


def _insert(store: Store, run_id: str, line: str, outputs: Mapping[str, Output]) -> dict[str, int]:
    ids = {}
    with store.write("publish.insert") as session:
        for name, output in outputs.items():
            row = ArtifactRow(kind=output.kind, line=line, base=output.base, run_id=run_id, created_at=now())
            session.add(row)
            session.flush()
            assert row.id is not None
            ids[name] = row.id
    return ids


def _note_digests(
    store: Store, ids: Mapping[str, int], sealed: Mapping[str, Sealed], metas: Mapping[str, dict[str, Any]]
) -> None:
    with store.write("publish.digest") as session:
        for name, row_id in ids.items():
            session.connection().execute(
                update(ArtifactRow)
                .where(ArtifactRow.id == row_id, ArtifactRow.state == "writing")  # type: ignore[arg-type]
                .values(digest=sealed[name].digest, bytes=sealed[name].bytes, meta=canonical(metas[name]))
            )


def _place(store: Store, folder: Path, digest: str) -> None:
    """Rename a sealed folder to where its digest lives, durably. The store's lock is held."""
    target = object_path(store.objects, digest)
    if target.exists():
        if store.is_committed(digest):
            shutil.rmtree(folder)
            return
        discard(store, digest)  # left over by a killed run, or tombstoned and not yet removed
    target.parent.mkdir(parents=True, exist_ok=True)
    faults.point("publish.rename.before")
    folder.rename(target)
    faults.point("publish.rename.after")
    # all of them, each time: a folder that is there may be one that a killed run made and never synced
    for parent in (target.parent, target.parent.parent, store.objects, folder.parent):
        sync(parent)
    faults.point("publish.parent.fsync.after")


def _commit(session: Session, run_id: str, name: str, row_id: int, sealed: Sealed) -> None:
    existing = session.exec(
        select(ArtifactRow).where(ArtifactRow.digest == sealed.digest, ArtifactRow.state == "committed")
    ).first()
    row = session.get_one(ArtifactRow, row_id)
    if existing is not None:
        assert existing.id is not None
        transition(
            session, ArtifactRow, row_id, "writing", "abandoned", by=run_id, note={"same_as": existing.id}
        )
        session.add(RunOutputRow(run_id=run_id, name=name, artifact_id=existing.id))
        return
    if (
        row.base is not None
        and not session.exec(
            select(ArtifactRow.id).where(ArtifactRow.digest == row.base, ArtifactRow.state == "committed")
        ).first()
    ):
        raise IntegrityError(f"the base {row.base} of output {name!r} is not in the store")
    newest = session.exec(select(func.max(ArtifactRow.version)).where(ArtifactRow.kind == row.kind)).one()
    transition(
        session,
        ArtifactRow,
        row_id,
        "writing",
        "committed",
        by=run_id,
        note={"digest": sealed.digest},
        version=(newest or 0) + 1,
    )
    session.add(RunOutputRow(run_id=run_id, name=name, artifact_id=row_id))


def discard(store: Store, digest: str) -> None:
    """Take an object's folder out of `objects/` in one step, then delete it. The store's lock is held."""
    target = object_path(store.objects, digest)
    if not target.exists():
        return
    trash = store.dir / "trash" / f"{target.name}-{uuid.uuid4().hex[:8]}"
    trash.parent.mkdir(exist_ok=True)
    faults.point("discard.rename.before")
    there = put_aside(target, trash)
    faults.point("discard.rename.after")
    sync(target.parent)
    remove_tree(there)
    faults.point("discard.delete.after")
