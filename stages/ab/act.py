"""What follows from a look: a canary is taken away, or given to everybody.

By the stages that do the same by hand. Not here: what a look says (`look.py`).
"""

from __future__ import annotations

from stages.ab.look import Seen
from stages.deploy.run import DeployStage
from stages.errors import InconclusiveError, RolledBackError
from stages.registry.store import Store
from stages.result import StageResult
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.stage import Progress
from stages.workspace import Workspace


def act(workspace: Workspace, store: Store, seen: Seen, progress: Progress) -> StageResult:
    """Promote what a look promotes; the deploy's result.

    Raises:
        RolledBackError: (exit 14) it was rolled back, or ended because nobody promoted what was held.
        InconclusiveError: (exit 4) it is held: nothing was changed.
    """
    if seen.action == "promote":
        stage = DeployStage(promote=True, reason=f"A/B: {seen.reason}")
        return run_stage(workspace, store, stage, progress=progress)
    if seen.action in ("roll_back", "end"):
        stage_back = RollbackStage(reason=f"A/B: {seen.reason}")
        done = run_stage(workspace, store, stage_back, progress=progress)
        word = "rolled back" if seen.action == "roll_back" else "taken away"
        raise RolledBackError(
            f"{done.metrics['canary']} was {word}: {seen.reason}",
            hint="`rtrl show " + seen.deployment + "` has every look with its numbers",
        )
    raise InconclusiveError(f"held: {seen.reason}", hint="look again later; `rtrl ab` shows the numbers")
