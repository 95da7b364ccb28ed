"""A rollback whose users have been moved is put on record whatever else is wrong with the command.

The stage needs the workspace's settings and `first.py` does not: where they cannot be read, the record is
written without them. Not here: everything else that can stand in the way of it (a registry that is locked or
away), which the running `rtrl serve` waits for (`stages/serving/reconcile.py`).
"""

from __future__ import annotations

from pathlib import Path

from stages.errors import RtrlError, UsageError
from stages.registry.store import Store
from stages.result import StageResult
from stages.rollback.first import Moved
from stages.target.intent import read_intent
from stages.target.switch import complete
from stages.workspace import Workspace

ALREADY = (
    "the users are on the earlier checkpoint already, and `rtrl serve` puts that on record: do not repeat it"
)


def finish_moved(folder: Path | None, moved: Moved, error: RtrlError) -> StageResult:
    """Record what was moved before `error` ended the command; the result says what is wrong, as a warning.

    Frees the lock that `moved` holds.

    Raises:
        `error`: there is nothing to record any more; or it is more than settings or usage, with a hint that
            the users have been moved.
    """
    workspace, intent = Workspace.find(folder), moved.intent
    if read_intent(workspace.run_dir, intent.line) != intent:
        raise error
    if not isinstance(error, UsageError):
        raise type(error)(error.message, hint=f"{error.hint}; {ALREADY}") from error
    store = Store.open(workspace.store_dir)
    left, back = store.artifact(intent.leaving), store.artifact(intent.checkpoint)
    with moved.lock.held():
        complete(store, workspace.run_dir, intent.line)
    facts = {
        "checkpoint": back.ref if back else intent.checkpoint,
        "from": left.ref if left else intent.leaving,
        "reason": intent.reason,
        "deployment": intent.deployment,
        "verification": moved.answer.get("verification") or {},
        "traffic_s": moved.seconds,
        "switch_s": moved.seconds,
        "changed": True,
    }
    told = StageResult("rollback", "succeeded", metrics=facts)
    told.warnings.append(f"rolled back, but the next command will not do: {error.message}")
    return told
