"""What must hold after a kill and the command that follows it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from killsweeps.ledger import Ledger
from killsweeps.processes import run
from stages import locks
from stages.errors import RtrlError
from stages.progress import Silent
from stages.registry.store import Store
from stages.registry.verify import verify
from stages.target.admin import Admin
from stages.target.endpoint import require_endpoint

GOOD = (0, 3, 4)  # done; the gate said no; too little data yet


def stuck_locks(workspace: Path, *, serving: bool = False, within_s: float = 15.0) -> list[str]:
    """Locks that somebody holds although nothing runs.

    With `serving`, those of `rtrl serve` may be; and any other that is free at some time within `within_s`
    seconds, as it takes the target's when it ends a deployment that a kill interrupted.
    """
    deadline = time.monotonic() + (within_s if serving else 0.0)
    while (held := _held(workspace, serving=serving)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def _held(workspace: Path, *, serving: bool) -> list[str]:
    ours = {"serve.lock", "writer.lock"} if serving else set()
    files = [*(workspace / "store" / "locks").glob("*.lock"), workspace / "spool" / "writer.lock"]
    files.append(workspace / "run" / "serve.lock")
    return [
        f"lock {path.name} is held: {locks.describe(locks.holder_of(path))}"
        for path in files
        if path.name not in ours and not locks.is_free(path)
    ]


def left_over(workspace: Path) -> list[str]:
    """What a repaired store must not hold: open runs, unfinished artifacts, temporary folders."""
    store = workspace / "store"
    queries = {
        "run still open: {}": "SELECT id FROM run WHERE state IN ('planned', 'running')",
        "artifact still being written: {}": "SELECT id FROM artifact WHERE state = 'writing'",
        "artifact removed by half: {}": "SELECT id FROM artifact"
        " WHERE state = 'tombstoned' AND removed_at IS NULL",
        "two live deployments on line {}": "SELECT line FROM deployment WHERE state = 'live'"
        " GROUP BY line HAVING count(*) > 1",
    }
    found = []
    with closing(sqlite3.connect(store / "registry.db", timeout=30)) as connection:
        for text, query in queries.items():
            found += [text.format(row[0]) for row in connection.execute(query)]
    for name in ("tmp", "trash"):
        found += [f"{name}/{path.name} is left over" for path in (store / name).iterdir()]
    return found


def store_is_sound(workspace: Path, depth: str = "present") -> list[str]:
    """`rtrl verify` within this process."""
    try:
        return verify(Store.open(workspace / "store"), depth, Silent()).problems  # type: ignore[arg-type]
    except RtrlError as error:
        return [f"verify: {error.message}"]


def served_is_live(workspace: Path, within_s: float = 15.0) -> list[str]:
    """What is served is what the registry says, at the latest when `rtrl serve` has looked again."""
    deadline = time.monotonic() + within_s
    while True:
        live = Store.open(workspace / "store").alias("auto", "live")
        try:
            admin = Admin(require_endpoint(workspace / "run"))
            served = admin.served().checkpoint
        except RtrlError as error:
            served = error.message
        if live is not None and served == live.digest:
            return []
        if time.monotonic() >= deadline:
            return [f"served is {served}, live is {live.digest if live else None}"]
        time.sleep(0.5)


def verify_command(workspace: Path) -> list[str]:
    """`rtrl verify --full` as a process."""
    ended = run(workspace, "verify", "--full", "--json")
    return [] if ended.code == 0 else [str(ended)]


def everything(workspace: Path, ledger: Ledger | None, *, serving: bool = False) -> list[str]:
    """All of it, cheap depth. Call it after the command that repairs."""
    problems: list[str] = []
    looks: list[Callable[[], list[str]]] = [
        lambda: stuck_locks(workspace, serving=serving),
        lambda: left_over(workspace),
        lambda: store_is_sound(workspace),
        lambda: ledger.check(workspace) if ledger else [],
    ]
    for look in looks:
        problems += look()
    return problems
