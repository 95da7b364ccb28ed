"""How far the registry counts on the spool, by its records' numbers, and since when.

What a collect has settled lies before the next one's window by number (`window.resume_seq`), also where
gc has removed the bytes. Of a spool that was begun anew the registry counts from the beginning: what was
collected until then says nothing of the records that are there (events of entity `spool`).
Not for: where a window begins (`stages/collect/position.py`), what the spool holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import func
from sqlmodel import col, select

from stages.registry.models import ArtifactRow, DeploymentRow, EventRow
from stages.registry.states import record

if TYPE_CHECKING:
    from sqlmodel import Session

    from stages.registry.store import Store

ENTITY = "spool"


def settled_up_to(store: Store) -> int:
    """The last record that no later collect of some line reads; 0 when there is none."""
    with store.read() as session:
        return _settled(session, _begun(session))


def highest(store: Store) -> int:
    """The highest number that is on record for anything: no record that is captured now may have it."""
    opened = func.max(func.json_extract(DeploymentRow.data, "$.canary.opened_seq"))
    held = func.max(func.json_extract(EventRow.data, "$.opened_seq"))
    with store.read() as session:
        canary = session.exec(select(opened)).one()
        holdback = session.exec(select(held).where(EventRow.entity == "holdback")).one()
        return max(_settled(session, 0), int(canary or 0), int(holdback or 0))


def begun_after(store: Store) -> int:
    """Version of the last interactions that are of another spool than what is there; 0 when none are."""
    with store.read() as session:
        return _begun(session)


def begin_anew(store: Store, last_seq: int, *, by: str) -> None:
    """Put on record that the spool, which ends with record `last_seq`, is not what was collected from."""
    newest = select(func.max(ArtifactRow.version)).where(ArtifactRow.kind == "interactions")
    with store.write("spool") as session:
        told: dict[str, Any] = {
            "interactions": int(session.exec(newest).one() or 0),
            "last_seq": last_seq,
            "settled": _settled(session, _begun(session)),
        }
        record(session, ENTITY, ENTITY, "", "anew", by=by, data=told)


def _begun(session: Session) -> int:
    query = select(EventRow.data).where(EventRow.entity == ENTITY).order_by(col(EventRow.seq).desc())
    last = session.exec(query).first()
    return int(json.loads(last)["interactions"]) if last else 0


def _settled(session: Session, after: int) -> int:
    """By interactions of a later version than `after`."""
    resume = func.max(func.json_extract(ArtifactRow.meta, "$.window.resume_seq"))
    query = select(resume).where(
        ArtifactRow.kind == "interactions",
        col(ArtifactRow.state).in_(("committed", "tombstoned")),
        col(ArtifactRow.version) > after,
    )
    return max(0, int(session.exec(query).one() or 0) - 1)
