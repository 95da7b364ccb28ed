"""Moving `live` and `anchor`: one transaction, one event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlmodel import Session, col, select

from stages.errors import InputMissingError, UsageError
from stages.registry.models import AliasRow, ArtifactRow, DeploymentRow, EventRow
from stages.registry.states import StateError, now, record, transition

if TYPE_CHECKING:
    from stages.registry.store import Store

NAMES = ("live", "anchor")


def move_alias(
    store: Store, line: str, name: str, digest: str, *, reason: str, by: str, deployment_id: str | None
) -> None:
    """Point `name` of `line` at a checkpoint.

    With `deployment_id` (only for `live`), the same transaction makes that deployment live from
    verifying or canary, retires the one that was live, and ends one that was rolling back.

    Raises:
        UsageError: (exit 2) no such alias, or the artifact is no checkpoint.
        InputMissingError: (exit 5) no such checkpoint.
        StateError: (exit 12) the deployment is of another checkpoint or not about to go live.
    """
    if name not in NAMES:
        raise UsageError(f"{name!r} is not an alias", hint=f"aliases: {', '.join(NAMES)}")
    with store.write("alias") as session:
        target = session.exec(
            select(ArtifactRow).where(ArtifactRow.digest == digest, ArtifactRow.state == "committed")
        ).first()
        if target is None or target.id is None:
            raise InputMissingError(f"there is no checkpoint {digest}")
        if target.kind != "checkpoint":
            raise UsageError(f"{digest} is a {target.kind}, not a checkpoint")
        if deployment_id is not None:
            _go_live(session, line, deployment_id, target.id, by)
        row = session.get(AliasRow, (line, name))
        before = ""
        if row is None:
            session.add(AliasRow(line=line, name=name, artifact_id=target.id, moved_at=now()))
        else:
            before = session.get_one(ArtifactRow, row.artifact_id).digest or ""
            row.artifact_id, row.moved_at = target.id, now()
        data = {"from": before, "to": digest, "reason": reason, "deployment": deployment_id}
        record(session, "alias", f"{line}/{name}", before, digest, by=by, data=data)


def was_live(store: Store, line: str, checkpoint: str) -> bool:
    """Whether a line ever served a checkpoint (digest) to all: `live` was moved to it, by whatever."""
    with store.read() as session:
        moved = select(EventRow.seq).where(
            EventRow.entity == "alias",
            EventRow.entity_id == f"{line}/live",
            EventRow.to_state == checkpoint,
        )
        return session.exec(moved.limit(1)).first() is not None


def _go_live(session: Session, line: str, deployment_id: str, artifact_id: int, by: str) -> None:
    row = session.get(DeploymentRow, deployment_id)
    if row is None:
        raise InputMissingError(f"there is no deployment {deployment_id}")
    if row.line != line or row.artifact_id != artifact_id:
        raise StateError(f"deployment {deployment_id} is of another line or checkpoint")
    others = session.exec(
        select(DeploymentRow).where(
            DeploymentRow.line == line,
            DeploymentRow.id != deployment_id,
            col(DeploymentRow.state).in_(("live", "rolling_back")),
        )
    ).all()
    ends = {"live": "retired", "rolling_back": "rolled_back"}
    for other in others:
        transition(session, DeploymentRow, other.id, other.state, ends[other.state], by=by, updated_at=now())
    if row.state != "live":
        transition(session, DeploymentRow, row.id, row.state, "live", by=by, updated_at=now())
