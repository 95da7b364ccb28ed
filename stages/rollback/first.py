"""Traffic first: a plain `rtrl rollback` moves the users before it loads what it takes to write the record.

Needs neither the registry's ORM nor the settings, whose imports take longer than the weights. A canary that
is open loses its users, else what was live before is served. What is unusual (another target, a line without
an engine, nothing served) is left to the stage, and so is whatever goes wrong here: the stage tries again and
says what it is.

Where the store is away, takes no lock, or its registry cannot be read, the gateway knows enough (`away.py`).
The running `rtrl serve` puts it on record when the store is back.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from stages import faults, locks
from stages.errors import LockedError
from stages.registry.schema import FILE, address
from stages.rollback.away import Asked, from_gateway
from stages.rollback.patience import Patience
from stages.rollback.traffic import Moved, canary_in, intend, move, served_now
from stages.target.endpoint import Endpoint, running_endpoint
from stages.target.intent import read_intent
from stages.target.light import post, settings_of_served
from stages.workspace import Workspace

BUSY_S = 2.0  # SQLite's patience here
TOLD_S = 1.0


@dataclass(frozen=True)
class Begun:
    """A rollback that was asked for.

    Attributes:
        asked: id of the deployment that it would have taken back when it was asked for, "" for none that is
            known. Another rollback may have taken it back by the time that this one has the lock: then it
            has what it wants, and goes no further.
        moved: what it has moved already; None where the stage has to do it.
    """

    asked: str
    moved: Moved | None


class Previous(NamedTuple):
    """Digests of what is live and of what to go back to (the same where only `canary` ends), and the folder
    with the latter's whole weights."""

    leaving: str
    checkpoint: str
    weights: Path | None
    canary: str = ""


def begin(
    folder: Path | None, reason: str, lock_timeout: float | None = None, to: str = "", line: str = ""
) -> Begun:
    """Note what is to be taken back, and give the users what was live before. Raises RtrlError.

    Args:
        to: reference of a checkpoint to go back to; "" for what was live before.
        line: of a population; "" for the one that is served to everybody else.
    """
    workspace = Workspace.find(folder)
    endpoint = running_endpoint(workspace.run_dir)
    line = line or (endpoint.line if endpoint is not None else "")
    asked = ""
    if endpoint is not None and not to:
        asked = _leaving(workspace.store_dir, line) or _leaving_there(endpoint, line)
    return Begun(asked, move_first(folder, Asked(line, reason, to), lock_timeout, asked))


def move_first(
    folder: Path | None, asked: Asked, lock_timeout: float | None = None, leaves: str = ""
) -> Moved | None:
    """Give the users what was live before; None where the stage has to do it. `leaves`: `Begun.asked`."""
    began = time.monotonic()
    workspace = Workspace.find(folder)
    endpoint = running_endpoint(workspace.run_dir)
    config = _patience(workspace.root, endpoint, asked.line)
    if endpoint is None or config is None:
        return None
    timeout = config.lock_timeout_s if lock_timeout is None else lock_timeout
    name = f"target-{asked.line}"
    try:
        if not (workspace.store_dir / FILE).is_file():  # no lock file is left in the place of a disk
            return from_gateway(workspace.run_dir, endpoint, asked, config, timeout)
        lock = _locked(workspace.store_dir / "locks" / f"{name}.lock", name, endpoint, asked.line, timeout)
    except OSError:
        return from_gateway(workspace.run_dir, endpoint, asked, config, timeout)
    try:
        try:
            moved = _by_registry(workspace, endpoint, asked, leaves, config)
        except sqlite3.Error:
            moved = from_gateway(workspace.run_dir, endpoint, asked, config, timeout)
    except BaseException:
        lock.release()
        raise
    if moved is None:
        lock.release()
        return None
    return replace(moved, lock=lock, began=began, seconds=round(time.monotonic() - began, 3))


def _locked(path: Path, name: str, endpoint: Endpoint, line: str, timeout: float) -> locks.FileLock:
    """The line's lock. A deploy that waits for answers in flight is told to give up. Raises LockedError."""
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        try:
            return locks.acquire(path, what=name, run="rollback", timeout=max(0.0, min(left, TOLD_S)))
        except LockedError:
            if left <= 0:
                raise
        with contextlib.suppress(OSError, HTTPException, ValueError):
            post(endpoint, "/admin/hurry", {"line": line}, TOLD_S)


def _by_registry(
    workspace: Workspace, endpoint: Endpoint, asked: Asked, leaves: str, config: Patience
) -> Moved | None:
    """Under the target's lock. Raises sqlite3.Error where the registry cannot be read."""
    found = _previous(workspace.store_dir, asked.line, leaves)
    engine = asked.line == endpoint.line or asked.line in endpoint.others
    if found is None or asked.to or not engine:
        return None
    intent = intend(asked.line, found.leaving, found.checkpoint, asked.reason, found.canary)
    before = read_intent(workspace.run_dir, asked.line)
    if before is not None:
        if (before.leaving, before.checkpoint, before.canary) != (
            found.leaving,
            found.checkpoint,
            found.canary,
        ):
            return None  # the stage puts that one on record first
        intent = before
    answer = move(workspace.run_dir, endpoint, intent, found.weights, config)
    if answer is None:
        return None
    faults.point("rollback.traffic.after")
    return Moved(intent, None, answer, 0.0, 0.0)


def _patience(root: Path, endpoint: Endpoint | None, line: str) -> Patience | None:
    """The settings file's `[rollback]` for a line, when the line that it names is the one that is served."""
    settings = settings_of_served(root, endpoint)
    if settings is None or endpoint is None:
        return None
    try:  # a section may be no section there: the stage says so
        populations = settings.get("populations", {})
        if line != endpoint.line and line not in populations:
            return None
        said = {**settings.get("rollback", {}), **populations.get(line, {}).get("rollback", {})}
        if not said:
            return Patience()
        from stages.rollback.config import RollbackConfig

        return Patience(**RollbackConfig(**said).model_dump())
    except (ValueError, TypeError, AttributeError):
        return None


def _leaving(store_dir: Path, line: str) -> str:
    """Id of the deployment that a rollback takes back now; "" when that cannot be told."""
    query = """SELECT id FROM deployment WHERE line = ? AND state IN ('canary', 'live', 'rolling_back')
               ORDER BY state"""  # a canary first
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_reading(store_dir)) as connection:
        found = connection.execute(query, (line,)).fetchone()
        return str(found[0]) if found else ""
    return ""


def _leaving_there(endpoint: Endpoint, line: str) -> str:
    """The same by the gateway, for where the registry cannot be read."""
    told = served_now(endpoint, line)
    return canary_in(told) or str(told.get("deployment") or "")


def _reading(store_dir: Path) -> sqlite3.Connection:
    return sqlite3.connect(address(store_dir / FILE), uri=True, timeout=BUSY_S)


def _previous(store_dir: Path, line: str, leaves: str) -> Previous | None:
    """What is to be done, by the registry; None where that is not plain, and where it has been done.

    Raises sqlite3.Error.
    """
    query = """SELECT deployment.id, artifact.digest, deployment.previous, deployment.state FROM deployment
               JOIN artifact ON artifact.id = deployment.artifact_id
               WHERE deployment.line = ? AND deployment.state IN ('live', 'canary', 'rolling_back')"""
    alias = """SELECT artifact.digest FROM alias JOIN artifact ON artifact.id = alias.artifact_id
               WHERE alias.line = ? AND alias.name = 'live'"""
    done = "SELECT 1 FROM deployment WHERE id = ? AND state = 'rolled_back'"
    with contextlib.closing(_reading(store_dir)) as connection:
        rows = connection.execute(query, (line,)).fetchall()
        live = connection.execute(alias, (line,)).fetchone()
        if connection.execute(done, (leaves,)).fetchone():
            return None
    if live is None or any(row[3] == "rolling_back" for row in rows):
        return None
    canary = next((row for row in rows if row[3] == "canary"), None)
    if canary is not None:
        return Previous(live[0], live[0], None, canary[0]) if canary[2] == live[0] else None
    if len(rows) != 1 or not rows[0][2] or live[0] != rows[0][1]:
        return None
    weights = _whole(store_dir, rows[0][2])
    return Previous(live[0], rows[0][2], weights) if weights is not None else None


def _whole(store_dir: Path, checkpoint: str) -> Path | None:
    digest = checkpoint.removeprefix("sha256:")
    folders = (store_dir / "objects" / "sha256" / digest[:2] / digest, store_dir / "rebuilt" / digest)
    return next((each for each in folders if any(each.glob("*.safetensors"))), None)
