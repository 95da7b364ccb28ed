"""The whole store at a glance, in one read and without the ORM (importing it would take longer than
everything here): what is live, what ran last, what there is.

Not for: anything that decides; decisions read through `Store`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from stages import locks
from stages.registry.schema import FILE, address, check_schema, explain

RECENT_RUNS = 10
RECENT_REPORTS = 200


def glance(store_dir: Path) -> dict[str, Any]:
    """Lines, counts, runs and reports as plain JSON-able data.

    Raises:
        StoreError: (exit 10) no store, or another schema.
    """
    path = store_dir / FILE
    check_schema(path)
    try:
        with contextlib.closing(sqlite3.connect(address(path), uri=True, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")
            return {
                "lines": _lines(connection),
                "artifacts": _counts(connection),
                "runs": _recent(connection),
                "running": _running(connection, store_dir),
                "last_of_stage": _last_of_stage(connection),
                "reports": _reports(connection),
                "unfinished": _unfinished(connection),
            }
    except sqlite3.DatabaseError as error:
        raise explain(error) from error


def _lines(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    lines: dict[str, dict[str, Any]] = {}
    query = """SELECT alias.line, alias.name, alias.moved_at, artifact.version, artifact.digest
               FROM alias JOIN artifact ON artifact.id = alias.artifact_id ORDER BY alias.line, alias.name"""
    for row in connection.execute(query):
        line = lines.setdefault(row["line"], {"line": row["line"], "live": None, "anchor": None})
        line[row["name"]] = {
            "ref": f"checkpoint@v{row['version']}",
            "digest": row["digest"],
            "since": row["moved_at"],
        }
    query = """SELECT deployment.*, artifact.version FROM deployment
               JOIN artifact ON artifact.id = deployment.artifact_id
               WHERE deployment.state IN ('live', 'staged', 'verifying', 'canary', 'rolling_back')
               ORDER BY deployment.rowid"""
    for row in connection.execute(query):
        line = lines.setdefault(row["line"], {"line": row["line"], "live": None, "anchor": None})
        line.setdefault("deployments", []).append(
            {
                "id": row["id"],
                "checkpoint": f"checkpoint@v{row['version']}",
                "state": row["state"],
                "since": row["updated_at"],
                "by": row["by"],
                "reason": row["reason"],
                "override": bool(row["override"]),
            }
        )
    for name, line in lines.items():
        line["report"] = _gate_report(connection, name)
    return list(lines.values())


def _gate_report(connection: sqlite3.Connection, line: str) -> dict[str, Any] | None:
    """What the gate said last of a candidate of the line; None before it said anything."""
    query = """SELECT version, created_at, meta FROM artifact
               WHERE line = ? AND kind = 'report' AND state = 'committed' ORDER BY version DESC LIMIT ?"""
    for row in connection.execute(query, (line, RECENT_REPORTS)):
        meta = json.loads(row["meta"])
        if meta.get("report", "gate") == "gate":
            said = {"verdict": meta.get("verdict"), "made": row["created_at"]}
            return {"ref": f"report@v{row['version']}", **said}
    return None


def _counts(connection: sqlite3.Connection) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    query = """SELECT kind, COUNT(*) AS n, SUM(bytes) AS bytes FROM artifact
               WHERE state = 'committed' GROUP BY kind"""
    for row in connection.execute(query):
        newest = connection.execute(
            "SELECT version, created_at FROM artifact WHERE kind = ? AND state = 'committed'"
            " ORDER BY version DESC LIMIT 1",
            (row["kind"],),
        ).fetchone()
        counts[row["kind"]] = {
            "count": row["n"],
            "bytes": row["bytes"],
            "newest": f"{row['kind']}@v{newest['version']}",
            "made": newest["created_at"],
        }
    return counts


def _run(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "stage": row["stage"],
        "line": row["line"],
        "state": row["state"],
        "began": row["created_at"],
        "ended": row["ended_at"],
        "error": json.loads(row["error"]) if row["error"] else None,
    }


def _recent(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    query = "SELECT * FROM run ORDER BY rowid DESC LIMIT ?"  # as they were begun, whatever the clock said
    return [_run(row) for row in connection.execute(query, (RECENT_RUNS,))]


def _running(connection: sqlite3.Connection, store_dir: Path) -> list[dict[str, Any]]:
    found = []
    for row in connection.execute("SELECT * FROM run WHERE state IN ('planned', 'running')"):
        alive = not locks.is_free(store_dir / "locks" / f"run-{row['id']}.lock")
        found.append({**_run(row), "alive": alive, "pid": row["pid"], "heartbeat": row["heartbeat_at"]})
    return found


def _last_of_stage(connection: sqlite3.Connection) -> dict[str, Any]:
    found = {}
    stages = connection.execute(
        # a skip scan: one look into the index per stage, not one per run
        """WITH RECURSIVE names(stage) AS (
             SELECT MIN(stage) FROM run
             UNION ALL SELECT (SELECT MIN(stage) FROM run WHERE stage > names.stage) FROM names
             WHERE names.stage IS NOT NULL)
           SELECT stage FROM names WHERE stage IS NOT NULL"""
    ).fetchall()
    for (stage,) in stages:
        row = connection.execute(
            "SELECT * FROM run WHERE rowid = (SELECT MAX(rowid) FROM run WHERE stage = ?)", (stage,)
        ).fetchone()
        found[stage] = {**_run(row), "metrics": json.loads(row["metrics"])}
    return found


def _reports(connection: sqlite3.Connection) -> dict[str, Any]:
    """The newest report of each type (`meta.report`, "gate" when it names none), with its figures."""
    found: dict[str, Any] = {}
    query = """SELECT version, digest, line, created_at, meta FROM artifact
               WHERE kind = 'report' AND state = 'committed' ORDER BY version DESC LIMIT ?"""
    for row in connection.execute(query, (RECENT_REPORTS,)):
        meta = json.loads(row["meta"])
        found.setdefault(
            str(meta.get("report", "gate")),
            {
                "ref": f"report@v{row['version']}",
                "line": row["line"],
                "digest": row["digest"],
                "made": row["created_at"],
                **meta,
            },
        )
    return found


def _unfinished(connection: sqlite3.Connection) -> dict[str, int]:
    """What a sweep will look at."""
    one = connection.execute
    return {
        "writing": one("SELECT COUNT(*) FROM artifact WHERE state = 'writing'").fetchone()[0],
        "to_remove": one(
            "SELECT COUNT(*) FROM artifact WHERE state = 'tombstoned' AND removed_at IS NULL"
        ).fetchone()[0],
    }
