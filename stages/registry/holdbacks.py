"""The holdback of a line on record: by which salt its users are drawn, and on which checkpoint they stay.

Events of entity `holdback`, appended and never changed. The salt is drawn once for a line and kept, so that
the same users stay held back as long as there is a holdback; a change of checkpoint or share begins a new
comparison. Not for: serving them (`stages/serving/holdback.py`), the comparison (`stages/ab/holdback.py`).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlmodel import Session, col, select

from stages.registry.models import EventRow
from stages.registry.states import record

if TYPE_CHECKING:
    from stages.registry.store import Store

ENTITY = "holdback"
OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True)
class Holdback:
    """Since `at`, the users of `line` whom `salt` draws for `share` stay on `checkpoint` (digest).

    `opened_seq` is the spool's last record then; `id` tells it from earlier ones.
    """

    id: str
    line: str
    checkpoint: str
    salt: str
    share: float
    opened_seq: int
    at: str
    event: int  # of the registry, with which it began
    open: bool


def holdback_of(store: Store, line: str) -> Holdback | None:
    """The line's holdback as recorded last, open or closed; None when there never was one."""
    query = (
        select(EventRow)
        .where(EventRow.entity == ENTITY, EventRow.entity_id == line)
        .order_by(col(EventRow.seq).desc())
    )
    with store.read() as session:
        row = session.exec(query).first()
    if row is None:
        return None
    told = json.loads(row.data)
    return Holdback(
        id=f"holdback-{line}-{row.seq}",
        line=line,
        checkpoint=told["checkpoint"],
        salt=told["salt"],
        share=told["share"],
        opened_seq=told["opened_seq"],
        at=row.at,
        event=row.seq or 0,
        open=row.to_state == OPEN,
    )


def compared(session: Session) -> set[str]:
    """Checkpoints (digests) of each line's last holdback: `rtrl ab --holdback` reads the users on it."""
    query = select(EventRow.entity_id, EventRow.data).where(EventRow.entity == ENTITY)
    last = dict(session.exec(query.order_by(col(EventRow.seq))).all())
    return {json.loads(data)["checkpoint"] for data in last.values()}


def open_holdback(
    store: Store, line: str, checkpoint: str, share: float, opened_seq: int, *, by: str
) -> Holdback:
    """Record that there is one from now on, unless the same is on record already. As it is then."""
    last = holdback_of(store, line)
    if last is not None and last.open and (last.checkpoint, last.share) == (checkpoint, share):
        return last
    told = {
        "checkpoint": checkpoint,
        "share": share,
        "opened_seq": opened_seq,
        "salt": last.salt if last else secrets.token_hex(8),
    }
    with store.write("holdback") as session:
        record(session, ENTITY, line, last_state(last), OPEN, by=by, data=told)
    found = holdback_of(store, line)
    assert found is not None
    return found


def close_holdback(store: Store, line: str, *, by: str) -> None:
    """Record that there is none any more. Nothing where there was none."""
    last = holdback_of(store, line)
    if last is None or not last.open:
        return
    told = {
        "checkpoint": last.checkpoint,
        "share": last.share,
        "opened_seq": last.opened_seq,
        "salt": last.salt,
    }
    with store.write("holdback") as session:
        record(session, ENTITY, line, OPEN, CLOSED, by=by, data=told)


def last_state(last: Holdback | None) -> str:
    """As the registry writes it."""
    return "" if last is None else OPEN if last.open else CLOSED
