"""What was taken away from its users is not served again by itself.

A candidate is chosen by its report, which still says that it passed; that it was rolled back says more.
`rtrl cycle` serves no such checkpoint again. A plain `rtrl deploy` serves again what somebody rolled back by
hand while it was live (and warns: whoever asks may know better by now), but no canary that was taken back,
which rules do at night as well: from cron it would undo each night what they had done. `--input REF` serves
either. Not here: what the gate says (`stages/deploy/choose.py`).
"""

from __future__ import annotations

from stages.errors import GateRejectedError
from stages.registry.store import Store
from stages.stage import Artifact


def refuse_taken_back(store: Store, line: str, candidate: Artifact, *, asked: bool) -> None:
    """Raise GateRejectedError (exit 3) when the candidate's last deployment on the line was rolled back.

    Args:
        asked: for a deploy, and not by a cycle; then only one that ended as a canary is refused.
    """
    past = store.deployments.rolled_back(line, candidate.digest)
    if past is None or (asked and past.data.get("ended_as") != "canary"):
        return
    why, ref = past.data.get("rollback_reason") or "no reason given", candidate.ref
    raise GateRejectedError(
        f"{ref} passed, and was rolled back when it was served: {why}",
        hint=f"new use makes another candidate; `rtrl deploy --input {ref}` serves this one still",
    )
