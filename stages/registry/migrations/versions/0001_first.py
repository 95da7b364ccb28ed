"""The first schema: runs, artifacts, their edges, aliases, deployments, pins, events.

Written as SQL and frozen: a migration must not follow the models as they change. A test compares
what all migrations together make with `stages/registry/models.py`.
"""

from __future__ import annotations

from alembic import op

from stages.errors import UsageError

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    """
    CREATE TABLE run (
        id VARCHAR NOT NULL,
        stage VARCHAR NOT NULL,
        line VARCHAR NOT NULL,
        state VARCHAR NOT NULL,
        fingerprint VARCHAR NOT NULL,
        config VARCHAR NOT NULL,
        extra VARCHAR NOT NULL,
        seed INTEGER NOT NULL,
        code_version VARCHAR NOT NULL,
        lock VARCHAR NOT NULL,
        from_run VARCHAR NOT NULL,
        pid INTEGER NOT NULL,
        host VARCHAR NOT NULL,
        created_at VARCHAR NOT NULL,
        heartbeat_at VARCHAR NOT NULL,
        ended_at VARCHAR,
        metrics VARCHAR NOT NULL,
        warnings VARCHAR NOT NULL,
        error VARCHAR,
        PRIMARY KEY (id),
        CONSTRAINT run_state CHECK (state IN ('planned', 'running', 'succeeded', 'rejected', 'inconclusive', 'failed', 'cancelled', 'lost')),
        CONSTRAINT run_ended_when_over CHECK ((state IN ('planned', 'running')) = (ended_at IS NULL))
    )
    """,
    "CREATE INDEX run_fingerprint ON run (fingerprint)",
    "CREATE UNIQUE INDEX run_open ON run (lock) WHERE state = 'running' AND lock <> ''",
    "CREATE INDEX run_created ON run (created_at)",
    "CREATE INDEX run_stage ON run (stage, created_at)",
    "CREATE INDEX run_unfinished ON run (id) WHERE state IN ('planned', 'running')",
    """
    CREATE TABLE artifact (
        id INTEGER NOT NULL,
        kind VARCHAR NOT NULL,
        line VARCHAR NOT NULL,
        state VARCHAR NOT NULL,
        digest VARCHAR,
        version INTEGER,
        bytes INTEGER,
        meta VARCHAR NOT NULL,
        base VARCHAR,
        run_id VARCHAR NOT NULL,
        created_at VARCHAR NOT NULL,
        removed_at VARCHAR,
        PRIMARY KEY (id),
        CONSTRAINT artifact_kind CHECK (kind IN ('interactions', 'experience', 'checkpoint', 'line_state', 'report')),
        CONSTRAINT artifact_state CHECK (state IN ('writing', 'committed', 'tombstoned', 'abandoned')),
        CONSTRAINT artifact_complete_when_committed CHECK (state NOT IN ('committed', 'tombstoned') OR (digest IS NOT NULL AND version IS NOT NULL AND bytes IS NOT NULL)),
        FOREIGN KEY(run_id) REFERENCES run (id)
    )
    """,
    "CREATE INDEX artifact_any_digest ON artifact (digest)",
    "CREATE INDEX artifact_base ON artifact (base) WHERE base IS NOT NULL",
    "CREATE INDEX artifact_counts ON artifact (kind, state, bytes)",
    "CREATE UNIQUE INDEX artifact_digest ON artifact (digest) WHERE state = 'committed'",
    "CREATE INDEX artifact_newest ON artifact (line, kind, version)",
    "CREATE INDEX artifact_to_remove ON artifact (id) WHERE state = 'tombstoned' AND removed_at IS NULL",
    "CREATE INDEX artifact_unfinished ON artifact (run_id) WHERE state = 'writing'",
    "CREATE UNIQUE INDEX artifact_version ON artifact (kind, version)",
    """
    CREATE TABLE run_input (
        run_id VARCHAR NOT NULL,
        role VARCHAR NOT NULL,
        artifact_id INTEGER NOT NULL,
        PRIMARY KEY (run_id, role),
        FOREIGN KEY(run_id) REFERENCES run (id),
        FOREIGN KEY(artifact_id) REFERENCES artifact (id)
    )
    """,
    "CREATE INDEX run_input_artifact ON run_input (artifact_id)",
    """
    CREATE TABLE run_output (
        run_id VARCHAR NOT NULL,
        name VARCHAR NOT NULL,
        artifact_id INTEGER NOT NULL,
        PRIMARY KEY (run_id, name),
        FOREIGN KEY(run_id) REFERENCES run (id),
        FOREIGN KEY(artifact_id) REFERENCES artifact (id)
    )
    """,
    "CREATE INDEX run_output_artifact ON run_output (artifact_id)",
    """
    CREATE TABLE alias (
        line VARCHAR NOT NULL,
        name VARCHAR NOT NULL,
        artifact_id INTEGER NOT NULL,
        moved_at VARCHAR NOT NULL,
        PRIMARY KEY (line, name),
        FOREIGN KEY(artifact_id) REFERENCES artifact (id)
    )
    """,
    """
    CREATE TABLE deployment (
        id VARCHAR NOT NULL,
        line VARCHAR NOT NULL,
        artifact_id INTEGER NOT NULL,
        state VARCHAR NOT NULL,
        run_id VARCHAR,
        report VARCHAR,
        previous VARCHAR,
        "by" VARCHAR NOT NULL,
        reason VARCHAR NOT NULL,
        override BOOLEAN NOT NULL,
        salt VARCHAR NOT NULL,
        data VARCHAR NOT NULL,
        created_at VARCHAR NOT NULL,
        updated_at VARCHAR NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT deployment_state CHECK (state IN ('staged', 'verifying', 'canary', 'live', 'retired', 'rolling_back', 'rolled_back', 'failed')),
        FOREIGN KEY(artifact_id) REFERENCES artifact (id),
        FOREIGN KEY(run_id) REFERENCES run (id)
    )
    """,
    "CREATE UNIQUE INDEX deployment_canary ON deployment (line) WHERE state = 'canary'",
    "CREATE INDEX deployment_line ON deployment (line, created_at)",
    "CREATE UNIQUE INDEX deployment_live ON deployment (line) WHERE state = 'live'",
    """
    CREATE TABLE pin (
        artifact_id INTEGER NOT NULL,
        "by" VARCHAR NOT NULL,
        reason VARCHAR NOT NULL,
        at VARCHAR NOT NULL,
        PRIMARY KEY (artifact_id),
        FOREIGN KEY(artifact_id) REFERENCES artifact (id)
    )
    """,
    """
    CREATE TABLE event (
        seq INTEGER NOT NULL,
        at VARCHAR NOT NULL,
        entity VARCHAR NOT NULL,
        entity_id VARCHAR NOT NULL,
        from_state VARCHAR NOT NULL,
        to_state VARCHAR NOT NULL,
        "by" VARCHAR NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (seq)
    )
    """,
    "CREATE INDEX event_entity ON event (entity, entity_id, seq)",
)

TRANSITIONS = {
    "artifact": {"writing": ("committed", "abandoned"), "committed": ("tombstoned",)},
    "run": {
        "planned": ("running", "failed", "cancelled", "lost"),
        "running": ("succeeded", "rejected", "inconclusive", "failed", "cancelled", "lost"),
    },
    "deployment": {
        "staged": ("verifying", "failed"),
        "verifying": ("canary", "live", "failed"),
        "canary": ("live", "rolling_back", "failed"),
        "live": ("retired", "rolling_back", "failed"),
        "rolling_back": ("rolled_back", "failed"),
        "retired": ("failed",),
        "rolled_back": ("failed",),
    },
}


def _guard(table: str, allowed: dict[str, tuple[str, ...]]) -> str:
    pairs = " OR ".join(
        f"(OLD.state = '{old}' AND NEW.state IN ({', '.join(repr(new) for new in news)}))"
        for old, news in allowed.items()
    )
    return f"""
    CREATE TRIGGER {table}_transition BEFORE UPDATE OF state ON {table}
    WHEN NEW.state <> OLD.state AND NOT ({pairs})
    BEGIN SELECT RAISE(ABORT, 'transition of {table} not allowed'); END
    """


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    for table, allowed in TRANSITIONS.items():
        op.execute(_guard(table, allowed))
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER event_no_{verb.lower()} BEFORE {verb} ON event"
            " BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"
        )


def downgrade() -> None:
    raise UsageError(
        "a registry has no way back",
        hint="restore a backup: `rtrl db upgrade` makes one before every upgrade",
    )
