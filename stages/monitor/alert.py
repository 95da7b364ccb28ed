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
from urllib.parse import urlsplit

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
    import httpx

    failed = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(_WAIT_S * 2 ** (attempt - 1))
        try:
            answer = httpx.post(url, json=body, timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failed = f"{host(url)}: {type(error).__name__}"
            continue
        if answer.is_success:
            return ""
        failed = f"{host(url)} answered {answer.status_code}"
        if answer.status_code < 500 and answer.status_code != 429:
            break
    return failed


def host(url: str) -> str:
    """What may be said of an address: scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or '?'}"


def _note(store: Store, one: Standing, line: str) -> None:
    from stages.registry.states import record

    with store.write("alarm") as session:
        record(session, ENTITY, one.alarm["id"], "", TOLD, by=getpass.getuser(), data={"line": line})
