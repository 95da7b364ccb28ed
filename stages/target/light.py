"""What a command can ask of a running gateway before it has imported what its record takes.

Needs neither the registry's ORM nor the settings. Where anything is unusual there is no answer, and the
stage does the whole and says what it is. Not here: everything else that is asked (`admin.py`).
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from http.client import HTTPException
from pathlib import Path
from typing import Any

from stages.errors import RtrlError
from stages.target.endpoint import Endpoint, running_endpoint
from stages.target.wire import ask
from stages.workspace import SETTINGS_FILE, Workspace

HINT_S = 1.0  # patience with a gateway that is only told something
_READ = ("RTRL_WORKSPACE__", "RTRL_ROLLBACK__", "RTRL_POPULATIONS__")  # sections that a rollback goes by
ASKED_S = 10.0  # and with one on whose word a rollback depends, while the store is away


def stage_ahead(folder: Path | None, ref: str, *, override: bool) -> None:
    """Tell the gateway what this command is about to deploy ("" the next one), so that its engine makes it
    ready meanwhile. Nothing depends on it, so no error is one."""
    with contextlib.suppress(OSError, HTTPException, ValueError, RtrlError):
        workspace = Workspace.find(folder)
        endpoint = running_endpoint(workspace.run_dir)
        if endpoint is not None and settings_of_served(workspace.root, endpoint) is not None:
            body = {"line": endpoint.line, "checkpoint": ref, "override": override}
            post(endpoint, "/admin/prepare", body, HINT_S)


def settings_of_served(root: Path, endpoint: Endpoint | None) -> dict[str, Any] | None:
    """What the settings file says, when the line it names is the one that is served, and nothing in the
    environment says otherwise of what is read of it here: RTRL_ENGINE__PROGRAM is no reason to keep the users
    waiting."""
    try:
        settings = tomllib.loads((root / SETTINGS_FILE).read_text(encoding="utf-8-sig"))
        line = settings.get("workspace", {}).get("line", "auto")
    except (OSError, ValueError, AttributeError):
        return None
    changed = any(name.startswith(_READ) for name in os.environ)
    return None if endpoint is None or line != endpoint.line or changed else settings


def served(endpoint: Endpoint) -> dict[str, Any] | None:
    """What the gateway says that it serves. As `post` otherwise."""
    return _unless_refused(ask(endpoint, "GET", "/admin/served", None, ASKED_S))


def post(endpoint: Endpoint, path: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
    """The admin listener's answer; None when it refuses. Raises OSError, HTTPException."""
    return _unless_refused(ask(endpoint, "POST", path, body, timeout_s))


def _unless_refused(answer: tuple[int, dict[str, Any] | None]) -> dict[str, Any] | None:
    status, document = answer
    return document if status < 300 else None
