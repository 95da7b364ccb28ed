"""Removing what nothing needs. Plans by default; `collect` does it.

Kept, and why: aliases, the live and the last three deployments of a line, its holdback, pins, inputs of
running runs, the newest of each kind and line, data made since the live checkpoint was made (a rejected
candidate leaves it usable; what newer data holds again, `superseded.py`, goes), whatever is younger than
`keep_days`; what was collected from session logs or telemetry, which may be nowhere else any more, and the
newest experience of each, unless it is older than `keep_log_days`; and what any of these refers to:
bases of deltas, the line state beside a checkpoint or an experience, the interactions of an experience,
a deployment's report. Of a checkpoint that is kept also its line states with an alarm that nobody has
acknowledged: it blocks the gate. A checkpoint's parent is not kept for the child's sake, unless the
child's weights are a delta to it, or `train` may have to score with it (`samplers.py`): then its files stay,
not what it refers to. Rebuilt folders of deltas stay while something in use needs them.

Rows stay, `tombstoned`: lineage outlives the bytes. Not for: the spool (`stages/collect/retention.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import desc
from sqlmodel import Session, col, select

from stages import faults
from stages.errors import UsageError
from stages.monitor import standing
from stages.registry import rebuilt
from stages.registry.deployments import MADE, went_live
from stages.registry.holdbacks import compared
from stages.registry.leftovers import remove_leftovers
from stages.registry.models import (
    AliasRow,
    ArtifactRow,
    DeploymentRow,
    PinRow,
    RunInputRow,
    RunOutputRow,
    RunRow,
)
from stages.registry.runs import OPEN
from stages.registry.samplers import samplers
from stages.registry.states import now, transition
from stages.registry.superseded import superseded
from stages.registry.sweep import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from stages.registry.store import Store

LAST_DEPLOYMENTS = 3
COLLECTED = "collected from session logs or telemetry"


@dataclass
class Plan:
    """What gc would remove, and why it keeps the rest."""

    remove: list[ArtifactRow] = field(default_factory=list)
    keep: dict[int, str] = field(default_factory=dict)  # artifact id -> the first reason found
    in_use: set[str] = field(default_factory=set)  # digests: served, to be gone back to, read by a run
    rebuilt: list[tuple[Path, int]] = field(default_factory=list)  # folders to remove, and their bytes

    @property
    def bytes(self) -> int:
        """What removing would free."""
        return sum(row.bytes or 0 for row in self.remove) + sum(size for _, size in self.rebuilt)


def plan(store: Store, keep_days: float, keep_log_days: float | None = None) -> Plan:
    """What may go. Changes nothing. What came from logs or telemetry stays for ever by default."""
    with store.read() as session:
        decided = _plan(store, session, keep_days, keep_log_days)
        kept = _digests(session)
    kept -= {row.digest or "" for row in decided.remove}
    decided.rebuilt = rebuilt.unneeded(store, decided.in_use, kept)
    return decided


def collect(store: Store, keep_days: float, keep_log_days: float | None = None, *, by: str) -> Plan:
    """Remove what the plan says, decided anew in the transaction that tombstones it; and old leftovers.

    Raises:
        UsageError: (exit 2) a scratch store, which owns none of what it reads.
    """
    if store.is_scratch:
        raise UsageError("this is a scratch store", hint="delete its folder when you are done with it")
    sweep(store)
    with store.write("gc") as session:
        decided = _plan(store, session, keep_days, keep_log_days)
        for row in decided.remove:
            assert row.id is not None
            transition(session, ArtifactRow, row.id, "committed", "tombstoned", by=by)
    faults.point("gc.tombstoned")
    sweep(store)
    with store.read() as session:
        kept = _digests(session)
    decided.rebuilt = rebuilt.unneeded(store, decided.in_use, kept)
    for folder, _ in decided.rebuilt:
        rebuilt.remove(store, folder, kept)
    remove_leftovers(store)
    return decided


def _digests(session: Session) -> set[str]:
    query = select(ArtifactRow.digest).where(ArtifactRow.state == "committed")
    return {digest for digest in session.exec(query) if digest is not None}


def _plan(store: Store, session: Session, keep_days: float, keep_log_days: float | None) -> Plan:
    rows = {
        row.id: row
        for row in session.exec(
            select(ArtifactRow).where(ArtifactRow.state == "committed").order_by(col(ArtifactRow.id))
        )
        if row.id is not None
    }
    in_use = _in_use(session, rows)
    found = Plan(keep=_roots(session, rows, keep_days, in_use))
    _keep_collected(rows, found.keep, keep_log_days)
    found.in_use = {rows[row_id].digest or "" for row_id in in_use if row_id in rows}
    _follow(session, rows, found.keep)
    for row_id, line in samplers(session).items():  # for their weights alone
        if row_id in rows:
            found.keep.setdefault(row_id, f"may have sampled what {line} trains on")
    _keep_alarms(store, rows, found.keep)
    _keep_bases(rows, found.keep)
    found.remove = [row for row_id, row in rows.items() if row_id not in found.keep]
    return found


def _in_use(session: Session, rows: dict[int, ArtifactRow]) -> dict[int, str]:
    """What is served, may be served again at once, or is being read."""
    keep: dict[int, str] = {}
    for alias in session.exec(select(AliasRow)):
        keep.setdefault(alias.artifact_id, f"{alias.name} of {alias.line}")
    _keep_deployments(session, rows, keep)
    running = (
        select(RunInputRow.artifact_id)
        .join(RunRow, col(RunRow.id) == RunInputRow.run_id)
        .where(col(RunRow.state).in_(OPEN))
    )
    for artifact_id in session.exec(running):
        keep.setdefault(artifact_id, "input of a running run")
    held = compared(session)
    for row_id, row in rows.items():
        if row.digest in held:
            keep.setdefault(row_id, "users were held back on it")
    return keep


def _roots(
    session: Session, rows: dict[int, ArtifactRow], keep_days: float, in_use: dict[int, str]
) -> dict[int, str]:
    keep = dict(in_use)
    for pin in session.exec(select(PinRow)):
        keep.setdefault(pin.artifact_id, f"pinned by {pin.by}: {pin.reason}")
    # as they were made, whatever the clock said then
    live = {
        alias.line: alias.artifact_id
        for alias in session.exec(select(AliasRow).where(AliasRow.name == "live"))
        if alias.artifact_id in rows
    }
    newest: dict[tuple[str, str], tuple[int, int]] = {}
    young, again = now(keep_days), superseded(rows)
    for row_id, row in rows.items():
        version = row.version or 0
        if version > newest.get((row.line, row.kind), (0, 0))[0]:
            newest[row.line, row.kind] = (version, row_id)
        if row.created_at >= young:
            keep.setdefault(row_id, f"younger than {keep_days:g} days")
        elif row_id in again:
            continue
        elif row.kind in ("interactions", "experience") and row_id > live.get(row.line, row_id):
            keep.setdefault(row_id, "data of the live checkpoint")
    for _, row_id in newest.values():
        keep.setdefault(row_id, "the newest of its kind")
    return {row_id: why for row_id, why in keep.items() if row_id in rows}


def _keep_collected(rows: dict[int, ArtifactRow], keep: dict[int, str], keep_log_days: float | None) -> None:
    """Add interactions of no checkpoint, which is to say of logs or telemetry, and the newest experience of
    each: the logs may have left the disk since, and what was received goes once it is in an artifact."""
    since = "" if keep_log_days is None else now(keep_log_days)
    waiting: set[str] = set()
    for row_id, row in rows.items():
        if (
            row.kind == "interactions"
            and row.created_at >= since
            and json.loads(row.meta).get("checkpoint") == ""
        ):
            keep.setdefault(row_id, COLLECTED)
            waiting.add(row.digest or "")
    for row_id in sorted(rows, reverse=True):  # as they were made, the newest first
        if rows[row_id].kind == "experience" and waiting:
            of = waiting.intersection(json.loads(rows[row_id].meta).get("interactions", ()))
            if of:
                keep.setdefault(row_id, COLLECTED)
                waiting -= of


def _keep_deployments(session: Session, rows: dict[int, ArtifactRow], keep: dict[int, str]) -> None:
    by_digest = {row.digest: row_id for row_id, row in rows.items()}
    seen: Counter[str] = Counter()  # deployments of each line
    served: Counter[str] = Counter()  # those that went live: what failed is no place to go back to
    query = select(DeploymentRow).order_by(desc(MADE))
    for deployment in session.exec(query):
        open_states = ("live", "staged", "verifying", "canary", "rolling_back")
        was_live, line = went_live(deployment.state, json.loads(deployment.data)), deployment.line
        recent = seen[line] < LAST_DEPLOYMENTS or (was_live and served[line] < LAST_DEPLOYMENTS)
        seen[line] += 1
        served[line] += was_live
        if not recent and deployment.state not in open_states:
            continue
        keep.setdefault(deployment.artifact_id, f"{deployment.id} ({deployment.state})")
        for digest in (deployment.report, deployment.previous):
            if digest in by_digest:
                keep.setdefault(by_digest[digest], f"of {deployment.id}")


def _follow(session: Session, rows: dict[int, ArtifactRow], keep: dict[int, str]) -> None:
    """Add what kept artifacts refer to, and what those refer to."""
    by_digest = {row.digest: row_id for row_id, row in rows.items()}
    waiting = list(keep)
    while waiting:
        row = rows[waiting.pop()]
        for referred, why in _references(session, row):
            row_id = by_digest.get(referred)
            if row_id is not None and row_id not in keep:
                keep[row_id] = why
                waiting.append(row_id)


def _keep_alarms(store: Store, rows: dict[int, ArtifactRow], keep: dict[int, str]) -> None:
    """Add line states of kept checkpoints with an alarm that waits; they refer to nothing else."""
    checkpoints = {row.digest for row_id, row in rows.items() if row_id in keep and row.kind == "checkpoint"}
    states = {
        row.digest: row_id
        for row_id, row in rows.items()
        if row.kind == "line_state" and row_id not in keep and row.digest
        if json.loads(row.meta).get("checkpoint") in checkpoints
    }
    for digest in standing.waiting(store.dir, states):
        keep[states[digest]] = "an alarm that nobody has acknowledged"


def _keep_bases(rows: dict[int, ArtifactRow], keep: dict[int, str]) -> None:
    """Add what kept deltas are made of, for their bytes alone: no line state comes with it."""
    by_digest = {row.digest: row_id for row_id, row in rows.items()}
    waiting = list(keep)
    while waiting:
        row = rows[waiting.pop()]
        row_id = by_digest.get(row.base) if row.base else None
        if row_id is not None and row_id not in keep:
            keep[row_id] = f"base of {row.kind}@v{row.version}"
            waiting.append(row_id)


def _references(session: Session, row: ArtifactRow) -> list[tuple[str, str]]:
    name = f"{row.kind}@v{row.version}"
    found: list[tuple[str, str]] = []
    for key, value in json.loads(row.meta).items():
        if key == "parent":
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.startswith("sha256:"):
                found.append((item, f"{key} of {name}"))
    if row.kind in ("checkpoint", "experience"):
        siblings = (
            select(ArtifactRow.digest)
            .join(RunOutputRow, col(RunOutputRow.artifact_id) == ArtifactRow.id)
            .where(
                ArtifactRow.kind == "line_state",
                col(RunOutputRow.run_id).in_(
                    select(RunOutputRow.run_id).where(RunOutputRow.artifact_id == row.id)
                ),
            )
        )
        found += [(digest, f"line state of {name}") for digest in session.exec(siblings) if digest]
    return found
