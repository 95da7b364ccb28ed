"""What was rolled back is not served again unless somebody names it.

`rtrl cycle`, and a plain `rtrl deploy` from cron, choose a candidate by its report, which still says that it
passed; that it was taken away from its users says more. Not here: what the gate says
(`stages/deploy/choose.py`).
"""

from __future__ import annotations

from stages.errors import GateRejectedError
from stages.registry.store import Store
from stages.stage import Artifact


def refuse_taken_back(store: Store, line: str, candidate: Artifact) -> None:
    """Raise GateRejectedError (exit 3) when the candidate's last deployment on the line was rolled back."""
    past = store.deployments.rolled_back(line, candidate.digest)
    if past is not None:
        why, ref = past.data.get("rollback_reason") or "no reason given", candidate.ref
        raise GateRejectedError(
            f"{ref} passed, and was rolled back when it was served: {why}",
            hint=f"new use makes another candidate; `rtrl deploy --input {ref}` serves this one still",
        )
