"""What follows from a look: a canary is taken away, or given to everybody.

By the stages that do the same by hand. Not here: what a look says (`look.py`).
"""

from __future__ import annotations

from stages.ab.ended import ended, looks_hint
from stages.ab.look import Seen
from stages.deploy.run import DeployStage
from stages.errors import InconclusiveError, InputMissingError, LockedError, RolledBackError
from stages.locks import RUN_AGAIN
from stages.registry.store import Store
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.stage import Progress
from stages.workspace import Workspace


def act(workspace: Workspace, store: Store, seen: Seen, progress: Progress) -> None:
    """Promote what a look promotes; nothing else than the canary that was looked at.

    A look takes a while: where the canary was ended meanwhile, by another `rtrl ab`, by hand or because its
    engine failed, that is what counts.

    Raises:
        RolledBackError: (exit 14) it was rolled back, or ended because nobody promoted what was held.
        InconclusiveError: (exit 4) it is held: nothing was changed.
        LockedError: (exit 11) somebody else deploys.
    """
    if seen.action == "hold":
        raise InconclusiveError(f"held: {seen.reason}", hint="look again later; `rtrl ab` shows the numbers")
    reason = f"A/B: {seen.reason}"
    try:
        if seen.action == "promote":
            promotion = DeployStage(promote=True, reason=reason, only=seen.deployment)
            run_stage(workspace, store, promotion, progress=progress)
            return
        back = RollbackStage(reason=reason, only=seen.deployment)
        done = run_stage(workspace, store, back, progress=progress)
    except LockedError as error:
        raise LockedError(error.message, hint=RUN_AGAIN) from error  # this command has no --lock-timeout
    except InputMissingError:
        if not ended(store, seen.deployment):
            raise
        return
    word = "rolled back" if seen.action == "roll_back" else "taken away"
    raise RolledBackError(
        f"{done.metrics['canary']} was {word}: {seen.reason}", hint=looks_hint(seen.deployment)
    )
