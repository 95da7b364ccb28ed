"""Looks at a canary: every decision is a row with its numbers, so that it can be computed again.

Events of entity `look`, appended and never changed. Not for: what the numbers mean (`stages/ab/`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from stages.registry.canonical import plain
from stages.registry.models import EventRow
from stages.registry.states import record

if TYPE_CHECKING:
    from stages.registry.store import Store

ENTITY = "look"


def record_look(store: Store, deployment: str, action: str, data: Mapping[str, Any], *, by: str) -> None:
    """Append one look at a deployment's canary."""
    with store.write("look") as session:
        record(session, ENTITY, deployment, "", action, by=by, data=plain(dict(data)))


def looks_of(store: Store, deployment: str) -> list[Mapping[str, Any]]:
    """The looks at a deployment, oldest first: their data with `action`, `at` and `by`."""
    query = (
        select(EventRow)
        .where(EventRow.entity == ENTITY, EventRow.entity_id == deployment)
        .order_by(col(EventRow.seq))
    )
    with store.read() as session:
        return [
            {**json.loads(row.data), "action": row.to_state, "at": row.at, "by": row.by}
            for row in session.exec(query).all()
        ]
