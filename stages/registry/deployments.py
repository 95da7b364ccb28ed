"""Deployments: a checkpoint on its way to, or at, the users of a line.

    staged -> verifying -> [canary ->] live -> retired
    canary | live -> rolling_back -> rolled_back        any -> failed

At most one deployment of a line is live and at most one is a canary; the database holds that.
Going live is `Store.move_alias(..., deployment_id=...)`, so that alias and states move together.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, desc, literal_column
from sqlmodel import col, select

from stages.errors import InputMissingError
from stages.registry.canonical import canonical, plain
from stages.registry.models import ArtifactRow, DeploymentRow
from stages.registry.states import now, record, transition

if TYPE_CHECKING:
    from sqlmodel import Session

    from stages.registry.store import Store


# as they were made, whatever the clock said then: rows are numbered by SQLite
MADE: ColumnElement[int] = literal_column("deployment.rowid")


def went_live(state: str, data: Mapping[str, Any]) -> bool:
    """Whether a deployment in this state, with this data, is or was live for all users of its line."""
    was = state in ("live", "retired", "rolling_back", "rolled_back")
    return was and data.get("ended_as") != "canary"


@dataclass(frozen=True)
class Deployment:
    """A deployment as it stood when read."""

    id: str
    line: str
    checkpoint: str  # digest
    state: str
    by: str
    reason: str
    report: str | None
    previous: str | None  # digest of the checkpoint served before
    override: bool
    salt: str
    run_id: str | None
    data: Mapping[str, Any]
    created_at: str
    updated_at: str


class Deployments:
    """The deployments of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(
        self,
        line: str,
        checkpoint: str,
        *,
        by: str,
        reason: str,
        report: str | None = None,
        previous: str | None = None,
        override: bool = False,
        run_id: str | None = None,
        data: Mapping[str, Any] | None = None,
        deployment_id: str = "",
    ) -> Deployment:
        """Stage a checkpoint for a line. Raises InputMissingError (exit 5): no such checkpoint.

        Args:
            deployment_id: of one that traffic has been given already; default a new one.
        """
        deployment_id = (
            deployment_id or f"deployment-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        )
        with self._store.write("deployment") as session:
            artifact_id = _artifact_of(session, checkpoint)
            session.add(
                DeploymentRow(
                    id=deployment_id,
                    line=line,
                    artifact_id=artifact_id,
                    run_id=run_id,
                    report=report,
                    previous=previous,
                    by=by,
                    reason=reason,
                    override=override,
                    salt=secrets.token_hex(8),
                    data=canonical(plain(data or {})),
                    created_at=now(),
                    updated_at=now(),
                )
            )
            record(session, "deployment", deployment_id, "", "staged", by=by, data={"reason": reason})
        return self.get(deployment_id)

    def transition(
        self, deployment_id: str, expected: str, new: str, *, by: str = "", **fields: Any
    ) -> Deployment:
        """Move a deployment from `expected` to `new`.

        Args:
            fields: `reason` and `report` replace the row's; anything else is merged into its data.

        Raises:
            StateError: (exit 12) it is not in `expected`, or another one of the line is in the way.
        """
        columns: dict[str, Any] = {key: fields.pop(key) for key in ("reason", "report") if key in fields}
        data = {**self.get(deployment_id).data, **fields}
        with self._store.write("deployment") as session:
            transition(
                session,
                DeploymentRow,
                deployment_id,
                expected,
                new,
                by=by or deployment_id,
                note=plain({**columns, **fields}),
                updated_at=now(),
                data=canonical(plain(data)),
                **columns,
            )
        return self.get(deployment_id)

    def end_canary(self, deployment_id: str, reason: str, *, by: str) -> Deployment:
        """Record that a canary was taken away from its users: rolling back, and back, at once.

        Raises StateError (exit 12) when it is no canary.
        """
        ended = {"rollback_reason": reason, "ended_as": "canary"}
        data = canonical(plain({**self.get(deployment_id).data, **ended}))
        with self._store.write("deployment") as session:
            note = {"rollback_reason": reason}
            transition(
                session, DeploymentRow, deployment_id, "canary", "rolling_back", by=by, note=note,
                updated_at=now(), data=data,
            )  # fmt: skip
            transition(
                session, DeploymentRow, deployment_id, "rolling_back", "rolled_back", by=by,
                updated_at=now(),
            )  # fmt: skip
        return self.get(deployment_id)

    def get(self, deployment_id: str) -> Deployment:
        """One deployment. Raises InputMissingError (exit 5)."""
        found = self._select(DeploymentRow.id == deployment_id)
        if not found:
            raise InputMissingError(f"there is no deployment {deployment_id}", hint="see `rtrl status`")
        return found[0]

    def current(self, line: str) -> Deployment | None:
        """The live deployment of a line."""
        found = self._select(DeploymentRow.line == line, DeploymentRow.state == "live")
        return found[0] if found else None

    def unfinished(self, line: str) -> list[Deployment]:
        """Deployments on their way in or out (staged, verifying, canary, rolling back), newest first."""
        states = ("staged", "verifying", "canary", "rolling_back")
        return self._select(DeploymentRow.line == line, col(DeploymentRow.state).in_(states))

    def rolled_back(self, line: str, checkpoint: str) -> Deployment | None:
        """The last deployment of a checkpoint (digest) that got anywhere, if it was rolled back."""
        of_it = (DeploymentRow.line == line, ArtifactRow.digest == checkpoint)
        nowhere = ("staged", "verifying", "failed")  # its command may have died
        last = self._select(*of_it, col(DeploymentRow.state).not_in(nowhere), limit=1)
        return last[0] if last and last[0].state in ("rolling_back", "rolled_back") else None

    def history(self, line: str, limit: int | None = 20) -> list[Deployment]:
        """All deployments of a line, newest first."""
        return self._select(DeploymentRow.line == line, limit=limit)

    def served(self, line: str, limit: int) -> list[Deployment]:
        """The last deployments of a line that went live, newest first."""
        return [each for each in self.history(line, None) if went_live(each.state, each.data)][:limit]

    def of(self, checkpoint: str) -> list[Deployment]:
        """All deployments of a checkpoint (digest), on any line, oldest first."""
        return self._select(ArtifactRow.digest == checkpoint)[::-1]

    def _select(self, *conditions: Any, limit: int | None = None) -> list[Deployment]:
        query = (
            select(DeploymentRow, ArtifactRow.digest)
            .join(ArtifactRow, col(ArtifactRow.id) == DeploymentRow.artifact_id)
            .where(*conditions)
            .order_by(desc(MADE))
            .limit(limit)
        )
        with self._store.read() as session:
            return [
                Deployment(
                    id=row.id,
                    line=row.line,
                    checkpoint=digest or "",
                    state=row.state,
                    by=row.by,
                    reason=row.reason,
                    report=row.report,
                    previous=row.previous,
                    override=row.override,
                    salt=row.salt,
                    run_id=row.run_id,
                    data=json.loads(row.data),
                    created_at=row.created_at,
                    updated_at=row.updated_at,
                )
                for row, digest in session.exec(query).all()
            ]


def _artifact_of(session: Session, checkpoint: str) -> int:
    """The row of a checkpoint (digest) that is whole. Raises InputMissingError (exit 5)."""
    found = session.exec(
        select(ArtifactRow).where(
            ArtifactRow.digest == checkpoint,
            ArtifactRow.state == "committed",
            ArtifactRow.kind == "checkpoint",
        )
    ).first()
    if found is None or found.id is None:
        raise InputMissingError(f"there is no checkpoint {checkpoint}")
    return found.id
