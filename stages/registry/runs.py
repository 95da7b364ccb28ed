"""Rows of runs: planned, begun, ended. A run is kept whether it succeeded or not."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlmodel import Session, select

from cursorbench.redaction import redact
from stages.errors import InputMissingError, RtrlError
from stages.interrupts import SIGNALLED
from stages.registry.canonical import canonical, in_order, plain
from stages.registry.models import ArtifactRow, RunInputRow, RunRow
from stages.registry.states import now, record, transition
from stages.result import status_of

if TYPE_CHECKING:
    from pathlib import Path

    from stages.registry.store import Store
    from stages.stage import Artifact


OPEN = ("planned", "running")  # states of a run that has not ended


def new_run_id(stage: str) -> str:
    """`train-20261120T160200-3f9a2c41`: readable, sorts by time, unique."""
    return f"{stage}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def scratch_of(store: Store, fingerprint: str, run_id: str) -> Path:
    """Where a run keeps what the next attempt goes on with: attempts of one fingerprint share it."""
    return store.dir / "scratch" / (fingerprint.removeprefix("sha256:")[:24] or run_id)


def begin_scratch(store: Store, fingerprint: str, run_id: str) -> Path:
    """`scratch_of`, made where it is not there; gc goes by when that was done last."""
    folder = scratch_of(store, fingerprint, run_id)
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    return folder


def begin_run(
    store: Store,
    run_id: str,
    *,
    stage: str,
    line: str,
    inputs: Mapping[str, Artifact],
    config: Mapping[str, Any],
    extra: Mapping[str, Any],
    seed: int,
    fingerprint: str = "",
    code_version: str = "",
    lock: str = "",
    from_run: str = "",
) -> None:
    """Insert the run with its inputs and set it running. Its own lock must be held already.

    Raises:
        InputMissingError: (exit 5) gc removed an input since it was resolved.
    """
    with store.write("run.begin") as session:
        session.add(
            RunRow(
                id=run_id,
                stage=stage,
                line=line,
                state="planned",
                fingerprint=fingerprint,
                config=canonical(dict(config), what="config"),
                extra=canonical(dict(extra), what="extra"),
                seed=seed,
                code_version=code_version,
                lock=lock,
                from_run=from_run,
                pid=os.getpid(),
                host=socket.gethostname(),
                created_at=now(),
                heartbeat_at=now(),
            )
        )
        session.flush()
        record(session, "run", run_id, "", "planned", by=run_id)
        for role, artifact in inputs.items():
            session.add(RunInputRow(run_id=run_id, role=role, artifact_id=_committed_id(session, artifact)))
        session.flush()
        transition(session, RunRow, run_id, "planned", "running", by=run_id)


def _committed_id(session: Session, artifact: Artifact) -> int:
    row_id = session.exec(
        select(ArtifactRow.id).where(ArtifactRow.digest == artifact.digest, ArtifactRow.state == "committed")
    ).first()
    if row_id is None:
        raise InputMissingError(f"{artifact.ref} was removed", hint="name another with --input")
    return row_id


def end_run(
    session: Session,
    run_id: str,
    state: str,
    *,
    metrics: Mapping[str, Any] | None = None,
    warnings: list[str] | None = None,
    error: Mapping[str, Any] | None = None,
) -> None:
    """Move a running run to its end, in the caller's transaction."""
    transition(
        session,
        RunRow,
        run_id,
        "running",
        state,
        by=run_id,
        ended_at=now(),
        metrics=in_order(plain(metrics or {})),
        warnings=canonical(list(warnings or [])),
        error=canonical(plain(error)) if error else None,
    )


def fail_run(store: Store, run_id: str, error: BaseException) -> str:
    """End a run that raised: `cancelled` when interrupted, else as `status_of` its exit code.

    With its error it is no result: the same run again is made, not answered from here (`finished_run`).
    Its artifacts stay `writing` for the sweep, which also knows whether an object was left behind.

    Returns:
        The state. "" when the run was never begun or has ended already.
    """
    described = describe_error(error)
    interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
    state = "cancelled" if interrupted else status_of(described["code"])
    with store.write("run.fail") as session:
        row = session.get(RunRow, run_id)
        if row is None or row.state != "running":
            return ""
        end_run(session, run_id, state, error=described)
    return state


def describe_error(error: BaseException) -> dict[str, Any]:
    """The envelope's form of an error: code, kind, message, hint."""
    if isinstance(error, RtrlError):
        return {"code": error.code, "kind": error.kind, "message": error.message, "hint": error.hint}
    if isinstance(error, KeyboardInterrupt):
        return {"code": 130, "kind": "interrupted", "message": "interrupted", "hint": ""}
    if isinstance(error, SystemExit):  # how the command line turns signals into an end
        word = SIGNALLED.get(error.code, "terminated")  # type: ignore[arg-type]
        return {"code": error.code, "kind": word, "message": word, "hint": ""}
    message = redact(f"{type(error).__name__}: {error}").text  # who knows what it quotes
    hint = "this is a bug in rtrl; run again with --debug and report it"
    return {"code": 1, "kind": "bug", "message": message, "hint": hint}
