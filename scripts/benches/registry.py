"""`rtrl status` as a process, over a store with 100,000 artifacts."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benches._timing import rtrl, seconds

ARTIFACTS = 100_000
RUNS = 15
KINDS = ("interactions", "experience", "checkpoint", "line_state", "report")


def fill(store: Path, artifacts: int) -> None:
    """Runs of one output each, in bulk, as years of cycles would leave them."""
    connection = sqlite3.connect(store / "registry.db")
    moment = "2026-01-01T{:02d}:{:02d}:{:02d}.{:06d}Z"
    times = [moment.format(i // 36000 % 24, i // 600 % 60, i // 10 % 60, i % 10) for i in range(artifacts)]
    with connection:
        connection.executemany(
            "INSERT INTO run (id, stage, line, state, fingerprint, config, extra, seed, code_version, lock,"
            " from_run, pid, host, created_at, heartbeat_at, ended_at, metrics, warnings)"
            " VALUES (?, ?, 'auto', 'succeeded', ?, '{}', '{}', 0, '0', '', '', 1, 'h', ?, ?, ?, ?, '[]')",
            (
                (f"run-{i}", f"stage{i % 5}", f"sha256:{i:064x}", at, at, at, '{"loss":0.5}')
                for i, at in enumerate(times)
            ),
        )
        connection.executemany(
            "INSERT INTO artifact (id, kind, line, state, digest, version, bytes, meta, run_id, created_at)"
            " VALUES (?, ?, 'auto', 'committed', ?, ?, 4000000, ?, ?, ?)",
            (
                (i + 1, KINDS[i % 5], f"sha256:{i:064x}", i // 5 + 1, '{"n":1}', f"run-{i}", at)
                for i, at in enumerate(times)
            ),
        )
        connection.executemany(
            "INSERT INTO run_output (run_id, name, artifact_id) VALUES (?, 'out', ?)",
            ((f"run-{i}", i + 1) for i in range(artifacts)),
        )
        connection.executemany(
            "INSERT INTO run_input (run_id, role, artifact_id) VALUES (?, 'in', ?)",
            ((f"run-{i}", i) for i in range(1, artifacts)),
        )
        connection.execute("INSERT INTO alias VALUES ('auto', 'live', 3, ?)", (times[0],))
    connection.close()


def figures() -> list[dict[str, Any]]:
    """The median of whole processes, interpreter start included."""
    from stages.workspace import Workspace

    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(Path(folder) / "w", "")
        fill(workspace.store_dir, ARTIFACTS)
        command = [*rtrl(), "status", "-w", str(workspace.root), "--json"]
        seconds(command)
        times = sorted(seconds(command) for _ in range(RUNS))
    return [
        {
            "id": "registry.status_s_100k",
            "what": "`rtrl status` as a process, 100,000 artifacts",
            "value": statistics.median(times),
            "unit": "s",
            "bar": "<= 0.5",
            "runs": RUNS,
            "spread": [times[0], times[-1]],
        }
    ]
