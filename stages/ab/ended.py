"""How a line's canaries ended: what `rtrl ab` says of one that is not open any more.

Not here: ending one (`stages/target/canary.py`), or deciding about it (`look.py`).
"""

from __future__ import annotations

from stages.errors import InputMissingError, RolledBackError
from stages.registry.deployments import Deployment
from stages.registry.store import Store

_PROMOTED = ("live", "retired")
_TAKEN_AWAY = ("rolling_back", "rolled_back")


def looks_hint(deployment: str) -> str:
    """Where the numbers are."""
    return f"`rtrl show {deployment}` has every look with its numbers"


def no_canary(store: Store, line: str) -> InputMissingError:
    """The error (exit 5) for a line without an open canary; it names the last one, and how that ended."""
    was = next((each for each in store.deployments.history(line, limit=None) if "canary" in each.data), None)
    last = f"; the last one: {_told(was)}" if was is not None else ""
    return InputMissingError(
        f"no canary of line {line} is open{last}", hint="`rtrl deploy --canary 0.1` opens one"
    )


def ended(store: Store, deployment: str) -> bool:
    """Whether this canary was promoted meanwhile; False while it is open, or when it never was.

    Raises RolledBackError (exit 14) when it was taken away.
    """
    was = store.deployments.get(deployment)
    if was.state in _TAKEN_AWAY and "canary" in was.data:
        raise RolledBackError(_told(was), hint=looks_hint(deployment))
    return was.state in _PROMOTED


def _told(was: Deployment) -> str:
    at = f"{was.updated_at[:16].replace('T', ' ')}Z"
    reason = str(was.data.get("rollback_reason") or was.reason)
    if was.state in _TAKEN_AWAY:
        return f"{was.id} was rolled back at {at}: {reason}"
    return f"{was.id} " + ("was promoted" if was.state in _PROMOTED else f"ended as {was.state} at {at}")
