"""What a rollback does while the store is away, takes no lock, or its registry cannot be read.

The gateway knows which canary is open, what is served, and what the registry went back to from it when it was
last looked at. One rollback at a time, by a lock in `run/`. What was moved before and is not on record yet is
brought to its end, and goes no further unless `--to` says so.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from stages import faults, locks
from stages.errors import StoreError
from stages.rollback.patience import Patience
from stages.rollback.traffic import Moved, canary_in, intend, move, served_now
from stages.target.endpoint import Endpoint
from stages.target.intent import Intent, read_intent

_DIGEST = re.compile(r"sha256:[0-9a-f]{6,64}")


class Asked(NamedTuple):
    """What somebody wants: `to` a checkpoint (reference), "" for what was before."""

    line: str
    reason: str
    to: str = ""


def from_gateway(
    run_dir: Path, endpoint: Endpoint, asked: Asked, config: Patience, timeout: float
) -> Moved | None:
    """Move the users by what the gateway knows; None where it does not know enough.

    Raises:
        StoreError (10): `asked.to` is nothing that it could serve now.
        LockedError (11): another rollback is under way for longer than `timeout` seconds.
    """
    name = f"rollback-{asked.line}"
    with locks.acquire(run_dir / f"{name}.lock", what=name, timeout=timeout).held():
        began = time.monotonic()
        told = served_now(endpoint, asked.line)
        if not told or (told.get("canary") or {"share": 1}).get("share") == 0:
            return None  # a deploy is trying one that has no users yet
        before = read_intent(run_dir, asked.line)
        intent = _intended(asked, told, before)
        if intent is None:
            return None
        if intent == before and _is_done(intent, told):
            return Moved(intent, None, {}, began, 0.0)
        weights = Path(str(told.get("previous_path"))) if intent.checkpoint != told["checkpoint"] else None
        answer = move(run_dir, endpoint, intent, weights, config)
        faults.point("rollback.traffic.after")
        seconds = round(time.monotonic() - began, 3)
        return None if answer is None else Moved(intent, None, answer, began, seconds)


def _is_done(intent: Intent, told: dict[str, Any]) -> bool:
    return intent.checkpoint == told["checkpoint"] and canary_in(told) != (intent.canary or None)


def _intended(asked: Asked, told: dict[str, Any], before: Intent | None) -> Intent | None:
    """What is to be done: what was intended before, where that is not on record yet and says the same."""
    line, reason, serves = asked.line, asked.reason, str(told["checkpoint"])
    canary, back = canary_in(told), str(told.get("previous") or "")
    if canary and canary == told.get("deployment"):
        return None  # it was about to become everybody's: what was live before only the registry knows
    if before is not None and (
        before.checkpoint not in (serves, back) or (canary or before.canary) != before.canary
    ):
        before = None  # of another time
    taken = canary or (before.canary if before else "") or _ended(told)
    target = _named(asked.to, told) if asked.to else ""
    if before is not None and target in ("", before.checkpoint):
        return before
    if not target:
        target = serves if taken else back
    if not target or (target == serves and not taken):
        return None
    leaving = before.leaving if before is not None and before.checkpoint == serves else serves
    return intend(line, leaving, target, reason, taken)


def _ended(told: dict[str, Any]) -> str:
    """Id of a canary without users that the registry was not seen without since; not of a promoted one."""
    ended = str(told.get("canary_ended", ""))
    return "" if ended == told.get("deployment") else ended


def _named(to: str, told: dict[str, Any]) -> str:
    """Digest of what `--to` names. Raises StoreError when the gateway does not know it."""
    known = {
        str(told["checkpoint"]): "",
        str(told.get("previous") or ""): str(told.get("previous_ref") or ""),
    }
    known.pop("", None)
    for digest, ref in known.items():
        if to == ref or (_DIGEST.fullmatch(to) and digest.startswith(to)):
            return digest
    back = " ".join(each for each in (told.get("previous_ref"), told.get("previous")) if each)
    raise StoreError(
        f"the store cannot be read, and without it the gateway knows no {to}",
        hint=f"it can go back to {back}"
        if back
        else "it can go back to nothing now; see to the store's disk",
    )
