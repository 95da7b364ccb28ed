"""Telling others of alarms: one JSON document per alarm, posted once, with retries.

    {"kind": "rtrl.alarm", "line": "auto", "alarm": {"id": ..., "behaviour": ..., "text": ..., ...}}

That an alarm was told is on record in the registry, so neither a restart nor a second program tells it again.
A webhook that does not answer costs a warning, never the cycle. Its address is a secret: messages name the
host alone. Not for: healthchecks (`stages/cycle/ping.py`).
"""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any

from stages import posting
from stages.monitor.standing import ENTITY, TOLD, Standing, standing

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

_WAIT_S = 0.5  # before the second try; doubled with each


def tell(workspace: Workspace, store: Store) -> list[str]:
    """Post every alarm of the live checkpoint that nobody was told of yet. Returns warnings."""
    config, line = workspace.settings.monitor, workspace.settings.workspace.line
    url = config.webhook.get_secret_value()
    if not url:
        return []
    waiting = [one for one in standing(store.dir, line) if not one.told and one.acknowledged is None]
    warnings = []
    for one in waiting:
        body = {"kind": "rtrl.alarm", "line": line, "alarm": one.alarm}
        if failed := post(url, body, config.timeout_s, config.retries):
            warnings.append(f"alarm {one.alarm['id']} was not told: {failed}")
            break  # the others would fail alike; the next look tries again
        _note(store, one, line)
    return warnings


def post(url: str, body: dict[str, Any], timeout_s: float, retries: int) -> str:
    """POST; "" when it was taken, else why not, without the address's path. 4xx are not tried again."""
    failed = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(_WAIT_S * 2 ** (attempt - 1))
        status, why = posting.post(url, body, timeout_s)
        if 200 <= status < 300:
            return ""
        failed = f"{posting.host(url)} answered {status}" if status else f"{posting.host(url)}: {why}"
        if status and status < 500 and status != 429:
            break
    return failed


def _note(store: Store, one: Standing, line: str) -> None:
    from stages.registry.states import record

    with store.write("alarm") as session:
        record(session, ENTITY, one.alarm["id"], "", TOLD, by=getpass.getuser(), data={"line": line})
