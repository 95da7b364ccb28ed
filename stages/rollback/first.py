"""Traffic first: a plain `rtrl rollback` moves the users before it loads what it takes to write the record.

Needs neither the registry's ORM nor the settings, whose imports take longer than the weights. What is
unusual (another target, a canary, nothing served, a registry that cannot be read) is left to the stage,
and so is whatever goes wrong here: the stage tries again and says what it is.

Where the store is away, or takes no lock, the gateway knows what it would go back to, and its engine may
have kept that. The running `rtrl serve` puts it on record when the store is back.
"""

from __future__ import annotations

import contextlib
import getpass
import secrets
import sqlite3
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from stages import faults, locks
from stages.errors import RtrlError
from stages.registry.schema import FILE
from stages.rollback.patience import Patience
from stages.target.endpoint import Endpoint, running_endpoint
from stages.target.intent import Intent, read_intent, remove_intent, write_intent
from stages.target.light import post, served, settings_of_served
from stages.workspace import Workspace

BUSY_S = 2.0  # SQLite's patience here


@dataclass(frozen=True)
class Moved:
    """Users are on the previous checkpoint.

    Attributes:
        lock: the line's target lock, held; None where the store is away.
        answer: of the gateway, with the proof.
        began: by `time.monotonic`, when this process began to look for what to do.
        seconds: from then to the moved traffic.
    """

    intent: Intent
    lock: locks.FileLock | None
    answer: dict[str, Any]
    began: float
    seconds: float


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


def begin(folder: Path | None, reason: str, lock_timeout: float | None = None) -> Begun:
    """Note what is to be taken back, and give the users what was live before. Raises RtrlError."""
    workspace = Workspace.find(folder)
    endpoint = running_endpoint(workspace.run_dir)
    asked = _leaving(workspace.store_dir, endpoint.line) if endpoint is not None else ""
    return Begun(asked, move_first(folder, reason, lock_timeout, asked))


def move_first(
    folder: Path | None, reason: str, lock_timeout: float | None = None, asked: str = ""
) -> Moved | None:
    """Give the users what was live before; None where the stage has to do it. `asked` as in `Begun`."""
    began = time.monotonic()
    workspace = Workspace.find(folder)
    endpoint = running_endpoint(workspace.run_dir)
    config = _patience(workspace.root, endpoint)
    if endpoint is None or config is None:
        return None
    timeout = config.lock_timeout_s if lock_timeout is None else lock_timeout
    name = f"target-{endpoint.line}"
    try:
        if not (workspace.store_dir / FILE).is_file():  # no lock file is left in the place of a disk
            return _from_gateway(workspace.run_dir, endpoint, reason, config, timeout)
        lock = locks.acquire(workspace.store_dir / "locks" / f"{name}.lock", what=name, timeout=timeout)
    except OSError:
        return _from_gateway(workspace.run_dir, endpoint, reason, config, timeout)
    try:
        found = _previous(workspace.store_dir, endpoint.line, asked)
        answer = None
        if found is not None:
            leaving, previous, weights = found
            intent = _intent(endpoint.line, previous, leaving, reason)
            answer = _moved(workspace.run_dir, endpoint, intent, weights, config)
    except BaseException:
        lock.release()
        raise
    if answer is None:
        lock.release()
        return None
    faults.point("rollback.traffic.after")
    return Moved(intent, lock, answer, began, round(time.monotonic() - began, 3))


def _intent(line: str, previous: str, leaving: str, reason: str) -> Intent:
    return Intent(
        line=line,
        checkpoint=previous,
        leaving=leaving,
        deployment=f"deployment-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
        reason=reason or "rollback",
        by=getpass.getuser(),
    )


def _from_gateway(
    run_dir: Path, endpoint: Endpoint, reason: str, config: Patience, timeout: float
) -> Moved | None:
    """Without a registry to ask and the target's lock to hold; one at a time, by a lock of its own."""
    name = f"rollback-{endpoint.line}"
    with locks.acquire(run_dir / f"{name}.lock", what=name, timeout=timeout).held():
        return _moved_back(run_dir, endpoint, reason, config)


def _moved_back(run_dir: Path, endpoint: Endpoint, reason: str, config: Patience) -> Moved | None:
    """To what the gateway says. Of one that was asked for before, and is not on record yet, nothing more is
    to be done."""
    began, line = time.monotonic(), endpoint.line
    told: dict[str, Any] | None = None
    with contextlib.suppress(OSError, HTTPException, ValueError):
        told = served(endpoint)
    if told is None or told.get("canary") is not None:
        return None
    before = read_intent(run_dir, line)
    if before is not None and before.checkpoint == told.get("checkpoint"):
        return Moved(before, None, {}, began, 0.0)
    if not told.get("previous"):
        return None
    intent = _intent(line, str(told["previous"]), str(told.get("checkpoint")), reason)
    answer = _moved(run_dir, endpoint, intent, Path(str(told.get("previous_path"))), config)
    return None if answer is None else Moved(intent, None, answer, began, round(time.monotonic() - began, 3))


def _patience(root: Path, endpoint: Endpoint | None) -> Patience | None:
    """The settings file's `[rollback]`, when the line it names is the one that is served."""
    settings = settings_of_served(root, endpoint)
    if settings is None or not settings.get("rollback"):
        return None if settings is None else Patience()
    from stages.rollback.config import RollbackConfig

    try:
        return Patience(**RollbackConfig(**settings["rollback"]).model_dump())
    except (ValueError, TypeError):
        return None


def _leaving(store_dir: Path, line: str) -> str:
    """Id of the deployment that a rollback takes back now; "" when that cannot be told."""
    query = """SELECT id FROM deployment WHERE line = ? AND state IN ('canary', 'live', 'rolling_back')
               ORDER BY state"""  # a canary first
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_reading(store_dir)) as connection:
        found = connection.execute(query, (line,)).fetchone()
        return str(found[0]) if found else ""
    return ""


def _reading(store_dir: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{store_dir / FILE}?mode=ro", uri=True, timeout=BUSY_S)


def _previous(store_dir: Path, line: str, asked: str) -> tuple[str, str, Path] | None:
    """Digests of what is live and was live before, and the folder with the latter's whole weights; None also
    where what was asked for has been done."""
    query = """SELECT artifact.digest, deployment.previous, deployment.state FROM deployment
               JOIN artifact ON artifact.id = deployment.artifact_id
               WHERE deployment.line = ? AND deployment.state IN ('live', 'canary', 'rolling_back')"""
    alias = """SELECT artifact.digest FROM alias JOIN artifact ON artifact.id = alias.artifact_id
               WHERE alias.line = ? AND alias.name = 'live'"""
    done = "SELECT 1 FROM deployment WHERE id = ? AND state = 'rolled_back'"
    try:
        with contextlib.closing(_reading(store_dir)) as connection:
            rows = connection.execute(query, (line,)).fetchall()
            live = connection.execute(alias, (line,)).fetchone()
            if connection.execute(done, (asked,)).fetchone():
                return None
    except sqlite3.Error:
        return None
    if len(rows) != 1 or rows[0][2] != "live" or not rows[0][1] or live is None or live[0] != rows[0][0]:
        return None
    digest = rows[0][1].removeprefix("sha256:")
    for weights in (store_dir / "objects" / "sha256" / digest[:2] / digest, store_dir / "rebuilt" / digest):
        if any(weights.glob("*.safetensors")):
            return rows[0][0], rows[0][1], weights
    return None


def _moved(
    run_dir: Path, endpoint: Endpoint, intent: Intent, weights: Path, config: Patience
) -> dict[str, Any] | None:
    body = {
        "line": intent.line,
        "checkpoint": intent.checkpoint,
        "path": str(weights),
        "deployment": intent.deployment,
        "drain_timeout_s": config.drain_timeout_s,
        "cut": True,
        "limit_s": config.engine_timeout_s,
    }
    write_intent(run_dir, intent)
    answer = None
    with contextlib.suppress(OSError, HTTPException, ValueError, RtrlError):
        answer = post(endpoint, "/admin/swap", body, config.swap_timeout_s)
    if answer is None:
        remove_intent(run_dir, intent.line)
    return answer
