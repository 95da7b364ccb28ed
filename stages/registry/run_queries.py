"""Runs and the edges between runs and artifacts: the part of `Store` that answers "who made this"."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Engine, desc, literal_column
from sqlmodel import Session, col, select

from stages.errors import InputMissingError, UsageError
from stages.registry.database import reading, writing
from stages.registry.models import ArtifactRow, RunInputRow, RunOutputRow, RunRow
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.stage import Kind


# as they were begun, whatever the clock said then: rows are numbered by SQLite
BEGUN: ColumnElement[int] = literal_column("run.rowid")


class RunQueries(ABC):
    """What `Store` knows of runs. Needs the engine and the places of objects."""

    engine: Engine

    @abstractmethod
    def path_of(self, digest: str) -> Path:
        """The folder of an object."""

    def read(self) -> AbstractContextManager[Session]:
        """A block that reads one consistent view."""
        return reading(self.engine)

    def write(self, what: str = "registry") -> AbstractContextManager[Session]:
        """A block that is one writing transaction (BEGIN IMMEDIATE); `what` names its fault points."""
        return writing(self.engine, what)

    def artifact_of(self, row: ArtifactRow) -> Artifact:
        """The record of a committed (or tombstoned) row."""
        assert row.digest is not None
        assert row.version is not None
        kind: Kind = row.kind  # type: ignore[assignment]  # the database checks it
        return Artifact(
            kind=kind,
            digest=row.digest,
            version=row.version,
            line=row.line,
            bytes=row.bytes or 0,
            created_at=row.created_at,
            run_id=row.run_id,
            meta=json.loads(row.meta),
            path=self.path_of(row.digest),
            base=row.base,
        )

    def run(self, run_id: str) -> RunRow:
        """A run by its id or an unmistakable beginning of it. Raises InputMissingError (exit 5)."""
        with self.read() as session:
            query = select(RunRow).where(col(RunRow.id) >= run_id, col(RunRow.id) < run_id + "\x7f").limit(2)
            rows = session.exec(query).all()
        if len(rows) > 1 and rows[0].id != run_id:
            raise UsageError(f"{run_id!r} is the beginning of several runs", hint="give more of it")
        if not rows:
            raise InputMissingError(f"there is no run {run_id}", hint="`rtrl status` lists runs")
        return rows[0]

    def runs(self, stage: str | None = None, states: tuple[str, ...] = (), limit: int = 50) -> list[RunRow]:
        """Runs, newest first."""
        query = select(RunRow).order_by(desc(BEGUN)).limit(limit)
        if stage is not None:
            query = query.where(RunRow.stage == stage)
        if states:
            query = query.where(col(RunRow.state).in_(states))
        with self.read() as session:
            return list(session.exec(query).all())

    def finished_run(self, fingerprint: str) -> RunRow | None:
        """The newest run that came to a result under this fingerprint and whose outputs are all there.

        A run that raised (too little data, too late) came to none, whatever its state is called.
        """
        query = (
            select(RunRow)
            .where(RunRow.fingerprint == fingerprint)
            .where(col(RunRow.state).in_(("succeeded", "rejected", "inconclusive")))
            .where(col(RunRow.error).is_(None))
            .order_by(desc(BEGUN))
        )
        gone = (
            select(RunOutputRow)
            .join(ArtifactRow, col(ArtifactRow.id) == RunOutputRow.artifact_id)
            .where(ArtifactRow.state != "committed")
        )
        with self.read() as session:
            for row in session.exec(query):
                if session.exec(gone.where(RunOutputRow.run_id == row.id)).first() is None:
                    return row
        return None

    def outputs_by_name(self, run_id: str) -> dict[str, Artifact]:
        """What a run published, by output name."""
        return self._edges(RunOutputRow, RunOutputRow.name, run_id)

    def inputs_by_role(self, run_id: str) -> dict[str, Artifact]:
        """What a run read, by role."""
        return self._edges(RunInputRow, RunInputRow.role, run_id)

    def outputs_of(self, run_id: str) -> list[Artifact]:
        """What a run published."""
        return list(self.outputs_by_name(run_id).values())

    def inputs_of(self, run_id: str) -> list[Artifact]:
        """What a run read."""
        return list(self.inputs_by_role(run_id).values())

    def _edges(
        self, edge: type[RunInputRow] | type[RunOutputRow], label: Any, run_id: str
    ) -> dict[str, Artifact]:
        query = (
            select(label, ArtifactRow)
            .join(ArtifactRow, col(ArtifactRow.id) == edge.artifact_id)
            .where(edge.run_id == run_id)
            .order_by(label)
        )
        with self.read() as session:
            return {name: self.artifact_of(row) for name, row in session.exec(query).all()}

    def producers(self, digest: str) -> list[RunRow]:
        """The runs that published this artifact, newest first."""
        query = (
            select(RunRow)
            .join(RunOutputRow, col(RunOutputRow.run_id) == RunRow.id)
            .join(ArtifactRow, col(ArtifactRow.id) == RunOutputRow.artifact_id)
            .where(ArtifactRow.digest == digest)
            .order_by(desc(BEGUN))
        )
        with self.read() as session:
            return list(session.exec(query).unique().all())

    def producer(self, digest: str) -> RunRow:
        """The newest run that published this artifact. Raises InputMissingError (exit 5)."""
        found = self.producers(digest)
        if not found:
            raise InputMissingError(f"no run published {digest}")
        return found[0]
