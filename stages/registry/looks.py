"""Looks at a canary: every decision is a row with its numbers, so that it can be computed again.

Events of entity `look` and, of what was tried before any user saw it, `shadow`; appended and never changed.
Not for: what the numbers mean (`stages/ab/`, `stages/shadow/`).
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

ENTITY, SHADOW = "look", "shadow"


def record_look(store: Store, deployment: str, action: str, data: Mapping[str, Any], *, by: str) -> None:
    """Append one look at a deployment's canary."""
    with store.write("look") as session:
        record(session, ENTITY, deployment, "", action, by=by, data=plain(dict(data)))


def record_shadow(store: Store, deployment: str, action: str, data: Mapping[str, Any], *, by: str) -> None:
    """Append what shadow replay made of a deployment's candidate: passed, failed or skipped."""
    with store.write("shadow") as session:
        record(session, SHADOW, deployment, "", action, by=by, data=plain(dict(data)))


def looks_of(store: Store, deployment: str) -> list[Mapping[str, Any]]:
    """The looks at a deployment, oldest first: their data with `action`, `at` and `by`."""
    return _recorded(store, ENTITY, deployment)


def shadows_of(store: Store, deployment: str) -> list[Mapping[str, Any]]:
    """What shadow replay made of a deployment's candidate, as `looks_of`."""
    return _recorded(store, SHADOW, deployment)


def _recorded(store: Store, entity: str, entity_id: str) -> list[Mapping[str, Any]]:
    query = (
        select(EventRow)
        .where(EventRow.entity == entity, EventRow.entity_id == entity_id)
        .order_by(col(EventRow.seq))
    )
    with store.read() as session:
        return [
            {**json.loads(row.data), "action": row.to_state, "at": row.at, "by": row.by}
            for row in session.exec(query).all()
        ]
