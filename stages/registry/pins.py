"""Artifacts that `rtrl gc` keeps whatever happens: somebody said so. Not for: its other reasons (`gc.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlmodel import col, select

from stages.registry.models import ArtifactRow, PinRow
from stages.registry.states import now, record

if TYPE_CHECKING:
    from stages.registry.store import Store


def pin(store: Store, digest: str, *, by: str, reason: str) -> None:
    """Keep an artifact whatever happens. Pinning again replaces the reason."""
    with store.write("pin") as session:
        row = session.exec(
            select(ArtifactRow).where(ArtifactRow.digest == digest, ArtifactRow.state == "committed")
        ).one()
        assert row.id is not None
        session.merge(PinRow(artifact_id=row.id, by=by, reason=reason, at=now()))
        record(session, "pin", digest, "", "pinned", by=by, data={"reason": reason})


def unpin(store: Store, digest: str, *, by: str) -> bool:
    """Undo a pin. Returns whether there was one."""
    with store.write("pin") as session:
        row = session.exec(
            select(PinRow)
            .join(ArtifactRow, col(ArtifactRow.id) == PinRow.artifact_id)
            .where(ArtifactRow.digest == digest)
        ).first()
        if row is None:
            return False
        session.delete(row)
        record(session, "pin", digest, "pinned", "", by=by)
    return True
