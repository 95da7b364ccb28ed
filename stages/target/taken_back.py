"""What was taken away from its users is not served again by itself, nor what was trained from it.

A candidate is chosen by its report, which still says that it passed; that it was rolled back says more.
`rtrl cycle` serves no such checkpoint again. A plain `rtrl deploy` serves again what somebody rolled back by
hand while it was live (and warns: whoever asks may know better by now), but no canary that was taken back,
which rules do at night as well: from cron it would undo each night what they had done. `--input REF` serves
either. The same holds for their children, up to what live was trained from too: what one rolls back for may
be nothing that the gate measures. Not here: what the gate says (`stages/deploy/choose.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stages.errors import GateRejectedError
from stages.registry.deployments import Deployment
from stages.registry.store import Store
from stages.stage import Artifact


def refuse_taken_back(store: Store, line: str, candidate: Artifact, *, asked: bool) -> None:
    """Raise GateRejectedError (exit 3) when the candidate's last deployment on the line was rolled back, or
    that of a checkpoint that it was trained from and live was not.

    Args:
        asked: for a deploy, and not by a cycle; then only one that ended as a canary is refused.
    """
    for past in _taken_back(store, line, candidate):
        if asked and past.data.get("ended_as") != "canary":
            continue
        ref, own = candidate.ref, past.checkpoint == candidate.digest
        what = "was rolled back when it was served" if own else _from(store, past)
        raise GateRejectedError(
            f"{ref} passed, and {what}: {_reason(past)}",
            hint=f"new use makes another candidate; `rtrl deploy --input {ref}` serves this one still",
        )


def require_kept(store: Store, line: str, began: str) -> None:
    """Raise GateRejectedError (exit 3) when what a cycle began from (a digest) was taken away meanwhile.

    The cycle would compare its child with what is live now. Live may have gone on from there (a canary was
    promoted): then the gate decides.
    """
    live = store.alias(line, "live")
    if live is not None and began in (live.digest, *store.ancestors(live.digest)):
        return
    past = store.deployments.rolled_back(line, began)
    why = f"was rolled back: {_reason(past)}" if past is not None else "is live no more"
    raise GateRejectedError(
        f"{_ref(store, began)}, which this cycle began from, {why}",
        hint="the next `rtrl cycle` begins from what is live",
    )


def warn_taken_back(store: Store, line: str, candidate: Artifact) -> list[str]:
    """What was taken back in words for whoever serves it all the same; none where nothing was taken back."""
    warnings = []
    for past in _taken_back(store, line, candidate):
        own = past.checkpoint == candidate.digest
        what = "had been rolled back before" if own else _from(store, past)
        warnings.append(f"{candidate.ref} {what}: {_reason(past)}")
    return warnings


def _taken_back(store: Store, line: str, candidate: Artifact) -> Iterator[Deployment]:
    """Rolled back deployments, each the last one of its checkpoint: of the candidate, and of those that it
    was trained from and live was not, nearest first."""
    live = store.alias(line, "live")
    shared = {live.digest, *store.ancestors(live.digest)} if live is not None else set()
    for digest in (candidate.digest, *store.ancestors(candidate.digest)):
        if digest in shared and digest != candidate.digest:
            return
        if (past := store.deployments.rolled_back(line, digest)) is not None:
            yield past


def _from(store: Store, past: Deployment) -> str:
    return f"was trained from {_ref(store, past.checkpoint)}, which was rolled back"


def _ref(store: Store, checkpoint: str) -> str:
    """How people call a checkpoint (digest), also one that gc removed."""
    found = store.artifact(checkpoint)
    return found.ref if found is not None else checkpoint[:19]


def _reason(past: Deployment) -> str:
    return str(past.data.get("rollback_reason") or "no reason given")
