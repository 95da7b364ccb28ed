"""Which transitions exist, and the one way to make them.

A transition is `UPDATE ... WHERE state = :expected` that changes exactly one row, plus one line in the
event table, in the caller's transaction. The same tables are triggers in the database
(`migrations/`), so that no other program can make an impossible state either.

    artifact    writing -> committed -> tombstoned        writing -> abandoned
    run         planned -> running -> succeeded | rejected | inconclusive | failed | cancelled | lost
    deployment  staged -> verifying -> [canary ->] live -> retired
                canary | live -> rolling_back -> rolled_back          any -> failed
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update
from sqlmodel import Session

from stages.errors import IntegrityError
from stages.registry.canonical import canonical
from stages.registry.models import ArtifactRow, DeploymentRow, EventRow, RunRow

ARTIFACT: dict[str, frozenset[str]] = {
    "writing": frozenset({"committed", "abandoned"}),
    "committed": frozenset({"tombstoned"}),
    "tombstoned": frozenset(),
    "abandoned": frozenset(),
}
_RUN_ENDS = frozenset({"succeeded", "rejected", "inconclusive", "failed", "cancelled", "lost"})
RUN: dict[str, frozenset[str]] = {
    "planned": frozenset({"running", "failed", "cancelled", "lost"}),
    "running": _RUN_ENDS,
    **{end: frozenset() for end in _RUN_ENDS},
}
DEPLOYMENT: dict[str, frozenset[str]] = {
    "staged": frozenset({"verifying", "failed"}),
    "verifying": frozenset({"canary", "live", "failed"}),
    "canary": frozenset({"live", "rolling_back", "failed"}),
    "live": frozenset({"retired", "rolling_back", "failed"}),
    "rolling_back": frozenset({"rolled_back", "failed"}),
    "retired": frozenset({"failed"}),
    "rolled_back": frozenset({"failed"}),
    "failed": frozenset(),
}
Row = type[ArtifactRow] | type[RunRow] | type[DeploymentRow]
_ALLOWED: dict[Row, tuple[str, dict[str, frozenset[str]]]] = {
    ArtifactRow: ("artifact", ARTIFACT),
    RunRow: ("run", RUN),
    DeploymentRow: ("deployment", DEPLOYMENT),
}


class StateError(IntegrityError):
    """Something is not in the state it was expected in, or the transition does not exist."""

    kind = "state"


def now(days_ago: float = 0.0) -> str:
    """The current time, or an earlier one, as the registry writes it: in the order of letters."""
    return (datetime.now(UTC) - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def transition(
    session: Session,
    row: Row,
    key: int | str,
    expected: str,
    new: str,
    *,
    by: str,
    note: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Move one row from state `expected` to `new`, set `fields` with it, record the event.

    Raises:
        StateError: (exit 12) there is no such transition, or the row is not in `expected`.
    """
    entity, allowed = _ALLOWED[row]
    if new not in allowed.get(expected, frozenset()):
        raise StateError(f"a {entity} cannot go from {expected} to {new}")
    statement = (
        update(row)
        .where(row.id == key, row.state == expected)  # type: ignore[arg-type]
        .values(state=new, **fields)
    )
    if session.connection().execute(statement).rowcount != 1:
        raise StateError(
            f"{entity} {key} is not {expected}", hint="somebody else changed it; look at it with `rtrl show`"
        )
    record(session, entity, str(key), expected, new, by=by, data=note)


def record(
    session: Session,
    entity: str,
    entity_id: str,
    from_state: str,
    to_state: str,
    *,
    by: str,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Append one line to the event table."""
    session.add(
        EventRow(
            at=now(),
            entity=entity,
            entity_id=entity_id,
            from_state=from_state,
            to_state=to_state,
            by=by,
            data=canonical(dict(data or {}), what="event"),
        )
    )
