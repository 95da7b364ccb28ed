"""What came first in the registry, by the numbers of its events: between two times a clock may have been set.

Not for: runs and deployments among themselves, whose rows are numbered (`run_queries.py`, `deployments.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import String, cast, desc, func
from sqlmodel import col, select

from stages.registry.models import ArtifactRow, EventRow

if TYPE_CHECKING:
    from stages.registry.store import Store


def began(store: Store, entity: str, entity_id: str) -> int:
    """Number of the event with which it came on record; 0 where it never did."""
    query = select(func.min(EventRow.seq)).where(EventRow.entity == entity, EventRow.entity_id == entity_id)
    with store.read() as session:
        return session.exec(query).one() or 0


def made_before(store: Store, kind: str, line: str, event: int, *, limit: int) -> list[str]:
    """Digests of the line's artifacts of a kind that were there before the event, newest first."""
    there = (
        select(EventRow.seq)
        .where(EventRow.entity == "artifact", EventRow.entity_id == cast(ArtifactRow.id, String))
        .where(EventRow.to_state == "committed", col(EventRow.seq) < event)
    )
    query = (
        select(ArtifactRow.digest)
        .where(ArtifactRow.kind == kind, ArtifactRow.line == line, ArtifactRow.state == "committed")
        .where(there.exists())
        .order_by(desc(col(ArtifactRow.version)))
        .limit(limit)
    )
    with store.read() as session:
        return [digest for digest in session.exec(query) if digest is not None]
