"""Rows of the registry. `table=True` models do not validate: rows are built from validated records,
and what must hold is held by the database (CHECK, UNIQUE, foreign keys, partial unique indexes here;
the triggers that guard transitions and the event table are in the migrations).

Times are ISO 8601 in UTC with microseconds, so that text order is time order. JSON columns hold
canonical text. Not for: what happens to the rows (`store.py`, `publish.py`, `deployments.py`).
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Text, text
from sqlmodel import Field, SQLModel

ARTIFACT_KINDS = ("interactions", "experience", "checkpoint", "line_state", "report")
ARTIFACT_STATES = ("writing", "committed", "tombstoned", "abandoned")
RUN_STATES = ("planned", "running", "succeeded", "rejected", "inconclusive", "failed", "cancelled", "lost")
DEPLOYMENT_STATES = (
    "staged",
    "verifying",
    "canary",
    "live",
    "retired",
    "rolling_back",
    "rolled_back",
    "failed",
)


def _in(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class RunRow(SQLModel, table=True):
    """One execution of a stage, kept whether it succeeded or not."""

    __tablename__ = "run"
    __table_args__ = (
        CheckConstraint(_in("state", RUN_STATES), name="run_state"),
        CheckConstraint("(state IN ('planned', 'running')) = (ended_at IS NULL)", name="run_ended_when_over"),
        Index("run_open", "lock", unique=True, sqlite_where=text("state = 'running' AND lock <> ''")),
        Index("run_fingerprint", "fingerprint"),
        Index("run_unfinished", "id", sqlite_where=text("state IN ('planned', 'running')")),
        Index("run_stage", "stage", "created_at"),
        Index("run_created", "created_at"),
    )

    id: str = Field(primary_key=True)
    stage: str
    line: str
    state: str
    fingerprint: str = ""  # "" for deploy, rollback and init, which have none
    config: str = "{}"
    extra: str = "{}"
    seed: int = 0
    code_version: str = ""
    lock: str = ""  # name of the lock held, "" for none
    from_run: str = ""  # the run this one repeats
    pid: int = 0
    host: str = ""
    created_at: str
    heartbeat_at: str = ""  # information only: whether the run lives, its lock says
    ended_at: str | None = None
    metrics: str = "{}"
    warnings: str = "[]"
    error: str | None = None


class ArtifactRow(SQLModel, table=True):
    """One artifact. It gets its digest before the rename, its version when committed."""

    __tablename__ = "artifact"
    __table_args__ = (
        CheckConstraint(_in("kind", ARTIFACT_KINDS), name="artifact_kind"),
        CheckConstraint(_in("state", ARTIFACT_STATES), name="artifact_state"),
        CheckConstraint(
            "state NOT IN ('committed', 'tombstoned')"
            " OR (digest IS NOT NULL AND version IS NOT NULL AND bytes IS NOT NULL)",
            name="artifact_complete_when_committed",
        ),
        Index("artifact_digest", "digest", unique=True, sqlite_where=text("state = 'committed'")),
        Index("artifact_any_digest", "digest"),
        Index("artifact_version", "kind", "version", unique=True),
        Index("artifact_newest", "line", "kind", "version"),
        Index("artifact_counts", "kind", "state", "bytes"),
        Index("artifact_unfinished", "run_id", sqlite_where=text("state = 'writing'")),
        Index("artifact_to_remove", "id", sqlite_where=text("state = 'tombstoned' AND removed_at IS NULL")),
        Index("artifact_base", "base", sqlite_where=text("base IS NOT NULL")),
    )

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    line: str
    state: str = "writing"
    digest: str | None = None
    version: int | None = None
    bytes: int | None = None
    meta: str = "{}"
    base: str | None = None  # digest of the artifact this one is a delta to
    run_id: str = Field(foreign_key="run.id")
    created_at: str
    removed_at: str | None = None  # when the folder of a tombstoned artifact was gone


class RunInputRow(SQLModel, table=True):
    """Which artifact a run read, and in which role."""

    __tablename__ = "run_input"
    __table_args__ = (Index("run_input_artifact", "artifact_id"),)

    run_id: str = Field(primary_key=True, foreign_key="run.id")
    role: str = Field(primary_key=True)
    artifact_id: int = Field(foreign_key="artifact.id")


class RunOutputRow(SQLModel, table=True):
    """Which artifact a run published. Two runs may have published the same one."""

    __tablename__ = "run_output"
    __table_args__ = (Index("run_output_artifact", "artifact_id"),)

    run_id: str = Field(primary_key=True, foreign_key="run.id")
    name: str = Field(primary_key=True)
    artifact_id: int = Field(foreign_key="artifact.id")


class AliasRow(SQLModel, table=True):
    """`live` and `anchor` of a line."""

    __tablename__ = "alias"

    line: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    artifact_id: int = Field(foreign_key="artifact.id")
    moved_at: str


class DeploymentRow(SQLModel, table=True):
    """One checkpoint on its way to, or at, the users of a line."""

    __tablename__ = "deployment"
    __table_args__ = (
        CheckConstraint(_in("state", DEPLOYMENT_STATES), name="deployment_state"),
        Index("deployment_live", "line", unique=True, sqlite_where=text("state = 'live'")),
        Index("deployment_canary", "line", unique=True, sqlite_where=text("state = 'canary'")),
        Index("deployment_line", "line", "created_at"),
    )

    id: str = Field(primary_key=True)
    line: str
    artifact_id: int = Field(foreign_key="artifact.id")
    state: str = "staged"
    run_id: str | None = Field(default=None, foreign_key="run.id")
    report: str | None = None  # digest of the report that let it pass
    previous: str | None = None  # digest of the checkpoint served before
    by: str
    reason: str
    override: bool = False  # deployed without a passing report
    salt: str  # of the assignment of users to arms
    data: str = "{}"
    created_at: str
    updated_at: str


class PinRow(SQLModel, table=True):
    """An artifact that gc must keep, and why."""

    __tablename__ = "pin"

    artifact_id: int = Field(sa_column=Column(ForeignKey("artifact.id"), primary_key=True))
    by: str
    reason: str
    at: str


class EventRow(SQLModel, table=True):
    """One transition. Append-only: triggers refuse changes and deletions."""

    __tablename__ = "event"
    __table_args__ = (Index("event_entity", "entity", "entity_id", "seq"),)

    seq: int | None = Field(default=None, primary_key=True)
    at: str
    entity: str  # artifact, run, deployment, alias, pin, schema, user, export, look, shadow, holdback
    entity_id: str
    from_state: str
    to_state: str
    by: str
    data: str = Field(sa_column=Column(Text, nullable=False))
