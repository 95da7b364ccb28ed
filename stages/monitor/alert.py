"""Telling others of alarms: one JSON document per alarm, posted with retries.

    {"kind": "rtrl.alarm", "line": "auto", "alarm": {"id": ..., "behaviour": ..., "text": ..., ...}}

That an alarm was told is on record in the registry, so neither a restart nor a second program tells it again;
one that is killed between the post and its record does, with the same id.
A webhook that does not answer costs a warning, never the cycle. Its address is a secret: messages name the
host alone. Not for: healthchecks (`stages/cycle/ping.py`).
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

from stages import addresses, locks, posting
from stages.errors import IntegrityError, LockedError, RtrlError
from stages.monitor.standing import ENTITY, TOLD, Standing, standing
from stages.who import who

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

_WAIT_S = 0.5  # before the second try; doubled with each,
_LONGEST_WAIT_S = 10.0  # up to this, as a cycle waits meanwhile


def tell(workspace: Workspace, store: Store) -> list[str]:
    """Post every alarm of what is served that nobody was told of yet. Returns warnings."""
    config, line = workspace.settings.monitor, workspace.settings.workspace.line
    url = config.webhook.get_secret_value()
    if not url:
        return []
    try:
        if not _waiting(store, line):
            return []
        with locks.hold(store.lock_path(f"alarms-{line}"), what="telling of alarms", timeout=0.0):
            return _tell(store, line, url, config.timeout_s, config.retries)
    except LockedError:
        return []  # somebody else is telling them
    # the gate refuses for what it cannot read; telling has no cycle to end
    except (IntegrityError, sqlite3.Error, OSError) as error:
        return [f"alarms were not told: {error}"]
    except RtrlError as error:  # the registry is busy or full: what was told is told again
        return [f"alarms may be told twice: {error.message}"]


def _waiting(store: Store, line: str) -> list[Standing]:
    return [one for one in standing(store.dir, line) if not one.told and one.acknowledged is None]


def _tell(store: Store, line: str, url: str, timeout_s: float, retries: int) -> list[str]:
    for one in _waiting(store, line):
        body = {"kind": "rtrl.alarm", "line": line, "alarm": one.alarm}
        if failed := post(url, body, timeout_s, retries):
            # the others would fail alike; the next look tries again
            return [f"alarm {one.alarm['id']} was not told: {failed}"]
        _note(store, one, line)
    return []


def post(url: str, body: dict[str, Any], timeout_s: float, retries: int) -> str:
    """POST; "" when it was taken, else why not, without the address's path. 4xx are not tried again."""
    failed = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(min(_WAIT_S * 2 ** min(attempt - 1, 16), _LONGEST_WAIT_S))
        status, why = posting.post(url, body, timeout_s)
        if 200 <= status < 300:
            return ""
        failed = f"{addresses.host(url)} answered {status}" if status else f"{addresses.host(url)}: {why}"
        if status and status < 500 and status != 429:
            break
    return failed


def _note(store: Store, one: Standing, line: str) -> None:
    from stages.registry.states import record

    with store.write("alarm") as session:
        record(session, ENTITY, one.alarm["id"], "", TOLD, by=who(), data={"line": line})
