"""The users of a line are taken from a canary, from what is live, or from both; the intent stands first.

Asked of the gateway's admin listener, with nothing imported that takes longer than the weights. Not here:
what to go back to (`first.py` by the registry, `away.py` without it), and the record
(`stages/target/completed.py`).
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from stages import faults, locks
from stages.errors import DependencyDownError, RtrlError
from stages.rollback.patience import Patience
from stages.target.endpoint import Endpoint
from stages.target.intent import Intent, remove_intent, write_intent
from stages.target.light import post, served
from stages.who import who

STOPPING_S = 60.0  # for a canary's engine to end, beside its answers


@dataclass(frozen=True)
class Moved:
    """Users are where they were to go back to.

    Attributes:
        lock: the line's target lock, held; None where the store is away.
        answer: of the gateway, with the proof; without one where only a canary ended.
        began: by `time.monotonic`, when this process began to look for what to do.
        seconds: from then to the moved traffic.
    """

    intent: Intent
    lock: locks.FileLock | None
    answer: dict[str, Any]
    began: float
    seconds: float


def intend(line: str, leaving: str, checkpoint: str, reason: str, canary: str = "") -> Intent:
    """From `leaving` (digest), what is live, to `checkpoint`, the same where only `canary` is to end."""
    made = f"deployment-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    return Intent(
        line=line,
        checkpoint=checkpoint,
        leaving=leaving,
        deployment=canary if checkpoint == leaving else made,
        reason=reason or "rollback",
        by=who(),
        canary=canary,
    )


def move(
    run_dir: Path, endpoint: Endpoint, intent: Intent, weights: Path | None, config: Patience
) -> dict[str, Any] | None:
    """End the intent's canary, then serve its checkpoint from folder `weights`; None: that is served.

    The gateway's answer. None when nothing was moved; then there is no intent either.

    Raises DependencyDownError (13) when the canary ended, and the weights are not served; that the canary
    ended stays an intent.
    """
    write_intent(run_dir, intent)
    if intent.canary and not _closed(endpoint, intent, config):
        remove_intent(run_dir, intent.line)
        return None
    faults.point("rollback.canary.after")
    answer = {} if weights is None else _swapped(endpoint, intent, weights, config)
    if answer is None and intent.canary:
        write_intent(
            run_dir, intend(intent.line, intent.leaving, intent.leaving, intent.reason, intent.canary)
        )
        raise DependencyDownError(
            f"the canary has ended; the engine did not go back to {intent.checkpoint[:19]}",
            hint="the output of `rtrl serve` says why; with the store there, roll back again",
        )
    if answer is None:
        remove_intent(run_dir, intent.line)
    return answer


def told_of(told: dict[str, Any] | None, line: str) -> dict[str, Any]:
    """A line's part of what the gateway says that it serves: of one without an engine, what the main line's
    users get; {} when it does not say."""
    if told is None or told.get("line") == line:
        return told or {}
    return told.get("lines", {}).get(line) or {key: told.get(key) for key in ("checkpoint", "deployment")}


def canary_in(told: dict[str, Any]) -> str:
    """Id of the canary of a line's part: of one whose engine starts as well, "" without one."""
    return str((told.get("canary") or {}).get("deployment", "") or told.get("canary_opening", ""))


def served_now(endpoint: Endpoint, line: str) -> dict[str, Any]:
    """A line's part of what the gateway says; {} when it does not."""
    with contextlib.suppress(OSError, HTTPException, ValueError):
        return told_of(served(endpoint), line)
    return {}


def _closed(endpoint: Endpoint, intent: Intent, config: Patience) -> bool:
    """Whether the canary has no users any more, whoever took them away."""
    body = {"line": intent.line, "drain_timeout_s": config.drain_timeout_s}
    told: dict[str, Any] = {}
    with contextlib.suppress(OSError, HTTPException, ValueError, RtrlError):
        answer = post(endpoint, "/admin/canary/close", body, 3 * config.drain_timeout_s + STOPPING_S)
        told = told_of((answer or {}).get("served"), intent.line)
    told = told or served_now(endpoint, intent.line)
    return bool(told) and canary_in(told) != intent.canary


def _swapped(endpoint: Endpoint, intent: Intent, weights: Path, config: Patience) -> dict[str, Any] | None:
    body = {
        "line": intent.line,
        "checkpoint": intent.checkpoint,
        "path": str(weights),
        "deployment": intent.deployment,
        "drain_timeout_s": config.drain_timeout_s,
        "cut": True,
        "limit_s": config.engine_timeout_s,
    }
    with contextlib.suppress(OSError, HTTPException, ValueError, RtrlError):
        return post(endpoint, "/admin/swap", body, config.swap_timeout_s)
    return None
