"""How far the registry counts on the spool, by its records' numbers, and since when.

What a collect has settled lies before the next one's window by number (`window.resume_seq`), also where
gc has removed the bytes. Of a spool that was begun anew the registry counts from the beginning: what was
collected until then says nothing of the records that are there (events of entity `spool`). Its numbers
begin behind a gap (`GAP`): a disk that comes back after all holds records that nobody collected, behind what
was settled of it, and may not end behind what is settled of its successor, or they would be passed over.
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
GAP = 1 << 40  # more than any spool holds, numbers reserved for lost files included; there are 63 bits


def settled_up_to(store: Store) -> int:
    """The last record that no later collect of some line reads; 0 when there is none."""
    with store.read() as session:
        return _settled(session, _begun(session))


def highest(store: Store) -> int:
    """The highest number that is on record for anything: no record that is captured now may have it."""
    with store.read() as session:
        return _highest(session)


def begun_after(store: Store) -> int:
    """Version of the last interactions that are of another spool than what is there; 0 when none are."""
    with store.read() as session:
        return _begun(session)


def begin_anew(store: Store, last_seq: int, *, by: str) -> None:
    """Put on record that the spool, which ends with record `last_seq`, is not what was collected from.

    `highest` is behind the gap from then on, also for a start after one that captured nothing.
    """
    newest = select(func.max(ArtifactRow.version)).where(ArtifactRow.kind == "interactions")
    with store.write("spool") as session:
        told: dict[str, Any] = {
            "interactions": int(session.exec(newest).one() or 0),
            "last_seq": last_seq,
            "settled": _settled(session, _begun(session)),
            "behind": _highest(session) + GAP,
        }
        record(session, ENTITY, ENTITY, "", "anew", by=by, data=told)


def _highest(session: Session) -> int:
    opened = func.max(func.json_extract(DeploymentRow.data, "$.canary.opened_seq"))
    held = func.max(func.json_extract(EventRow.data, "$.opened_seq"))
    behind = func.max(func.json_extract(EventRow.data, "$.behind"))  # of a spool that has no record yet, too
    found = (
        session.exec(select(opened)).one(),
        session.exec(select(held).where(EventRow.entity == "holdback")).one(),
        session.exec(select(behind).where(EventRow.entity == ENTITY)).one(),
    )
    return max(_settled(session, 0), *(int(one or 0) for one in found))


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
