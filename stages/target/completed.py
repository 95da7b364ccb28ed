"""A rollback whose traffic moved before the registry could say so is put on record.

By whoever holds the line's target lock and finds its intent (`intent.py`): the running `rtrl serve`, the next
deploy or rollback, or the command itself. What somebody asked for by hand counts more than what was decided
while it was not on record: a canary that was promoted meanwhile is taken back. Not here: moving traffic.
"""

from __future__ import annotations

from pathlib import Path

from stages import faults
from stages.registry.store import Store
from stages.stage import Artifact
from stages.target.canary import canary_of
from stages.target.intent import Intent, read_intent, remove_intent
from stages.target.switch import end_interrupted, previous_of, record


def complete(store: Store, run_dir: Path, line: str) -> bool:
    """Put a line's rollback on record; whether there was one.

    The caller holds the target's lock. One that the registry has already is only forgotten.
    """
    intent = read_intent(run_dir, line)
    if intent is None:
        return False
    open_ = canary_of(store, line) if intent.canary else None
    if open_ is not None and open_.id == intent.canary:
        store.deployments.end_canary(open_.id, intent.reason, by=intent.by)
        faults.point("rollback.canary.recorded")
    live = store.alias(line, "live")
    if live is not None and live.digest != intent.checkpoint and _is_left(store, intent, live):
        _moved(store, intent, live)
    faults.point("rollback.recorded")
    remove_intent(run_dir, line)
    return True


def _is_left(store: Store, intent: Intent, live: Artifact) -> bool:
    """Whether what is live is what the users were taken from: as live one, or as a canary promoted since."""
    if live.digest == intent.leaving:
        return True
    made = [each for each in store.deployments.history(intent.line) if each.id == intent.canary]
    return any(each.state in ("live", "rolling_back") and each.checkpoint == live.digest for each in made)


def _moved(store: Store, intent: Intent, live: Artifact) -> None:
    line, target = intent.line, store.artifact(intent.checkpoint)
    if target is None:
        return
    end_interrupted(store, line)
    current = store.deployments.current(line)
    known = {each.id for each in store.deployments.history(line)}
    deployment = store.deployments.create(
        line,
        intent.checkpoint,
        by=intent.by,
        reason=intent.reason,
        previous=previous_of(store, line, intent.checkpoint),
        data={"from": live.digest, "rollback_of": current.id if current else None},
        deployment_id="" if intent.deployment in known else intent.deployment,
    )
    deployment = store.deployments.transition(deployment.id, "staged", "verifying")
    record(store, line, target, deployment, intent.reason, intent.by, current)
