"""A rollback whose users have been moved is put on record whatever else is wrong with the command.

The stage needs the workspace's settings and `first.py` does not: where they cannot be read, the record is
written without them. What else can stand in the way of it (a registry that is locked or away) the running
`rtrl serve` waits for (`stages/serving/reconcile.py`).
"""

from __future__ import annotations

from pathlib import Path

from stages import locks
from stages.errors import DependencyDownError, RtrlError, StoreError, UsageError, classified
from stages.registry.store import Store
from stages.result import StageResult
from stages.rollback.traffic import Moved, served_now
from stages.stage import Artifact
from stages.target.completed import complete
from stages.target.endpoint import running_endpoint
from stages.target.intent import read_intent
from stages.workspace import Workspace

ALREADY = (
    "the users are on the earlier checkpoint already, and `rtrl serve` puts that on record: do not repeat it"
)

LATER = "the running `rtrl serve` puts it there when the store is back; do not repeat it"


def finish_moved(folder: Path | None, moved: Moved, error: RtrlError) -> StageResult:
    """Record what was moved before `error` ended the command; the result says what is wrong, as a warning.

    Frees the lock that `moved` holds.

    Raises:
        `error`: there is nothing to record any more; or it is more than settings, usage, and a store that is
            away or busy, with a hint that the users have been moved.
    """
    workspace, intent = Workspace.find(folder), moved.intent
    if read_intent(workspace.run_dir, intent.line) != intent:
        raise error
    assert moved.lock is not None
    with moved.lock.held():
        busy = isinstance(error, StoreError | DependencyDownError)
        if busy and running_endpoint(workspace.run_dir) is not None:
            told = _told(moved, None, None)
            told.warnings.append(f"not on record, {error.message}: {LATER}")
            return told
        if not isinstance(error, UsageError):
            raise type(error)(error.message, hint=f"{error.hint}; {ALREADY}") from error
        store = Store.open(workspace.store_dir)
        left, back = store.artifact(intent.leaving), store.artifact(intent.checkpoint)
        complete(store, workspace.run_dir, intent.line)
    told = _told(moved, left, back)
    told.warnings.append(f"rolled back, but the next command will not do: {error.message}")
    return told


def finish_away(folder: Path | None, moved: Moved) -> StageResult:
    """Of one without a lock, as the store was away: on record now if it is back, else a warning says so."""
    workspace, intent = Workspace.find(folder), moved.intent
    told = _told(moved, None, None)
    try:
        with classified():
            store = Store.open(workspace.store_dir)
            with locks.acquire(store.lock_path(f"target-{intent.line}"), what="rollback").held():
                complete(store, workspace.run_dir, intent.line)
    except RtrlError as error:
        told.warnings.append(f"not on record, {error.message}: {LATER}")
    endpoint = running_endpoint(workspace.run_dir)
    state = served_now(endpoint, intent.line).get("engine", "ready") if endpoint is not None else "down"
    if state != "ready":
        told.warnings.append(f"the engine that they are on now is {state}: they get 503 until it is up")
    return told


def _told(moved: Moved, left: Artifact | None, back: Artifact | None) -> StageResult:
    intent = moved.intent
    facts = {
        "checkpoint": back.ref if back else intent.checkpoint,
        "from": left.ref if left else intent.leaving,
        "reason": intent.reason,
        "deployment": intent.deployment,
        "verification": moved.answer.get("verification") or {},
        "traffic_s": moved.seconds,
        "switch_s": moved.seconds,
        "changed": True,
        **({"canary_ended": intent.canary} if intent.canary else {}),
    }
    return StageResult("rollback", "succeeded", metrics=facts)
