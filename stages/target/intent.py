"""`run/rollback-LINE.json`: a rollback whose traffic moves before the registry can say so.

Written before the gateway is asked, removed when the registry has it. Whoever finds one while the line's
target lock is free brings the rollback to its end (`switch.complete`): a command that was killed, or a
registry that took no writes, leaves the users on the weights that were asked for.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cursorbench.files import write_whole
from stages import faults


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be served in place of what. `checkpoint` and `leaving` are digests, the same where only a
    canary ends."""

    line: str
    checkpoint: str
    leaving: str
    deployment: str  # the id that generations are recorded under, of a deployment still to be made
    reason: str
    by: str
    canary: str = ""  # id of the deployment that loses its users first


def write_intent(run_dir: Path, intent: Intent) -> None:
    """Durable when it returns."""
    renaming = faults.around("rollback.intent")
    content = msgspec.json.encode(intent)
    write_whole(_path(run_dir, intent.line), content, private=True, renaming=renaming)


def _path(run_dir: Path, line: str) -> Path:
    return run_dir / f"rollback-{line}.json"


def read_intent(run_dir: Path, line: str) -> Intent | None:
    """What there is; None without one, or when it is damaged (then it is as if it had not been asked)."""
    try:
        return msgspec.json.decode(_path(run_dir, line).read_bytes(), type=Intent)
    except (FileNotFoundError, ValueError):
        return None


def remove_intent(run_dir: Path, line: str) -> None:
    """It is on record, or nothing came of it."""
    _path(run_dir, line).unlink(missing_ok=True)
