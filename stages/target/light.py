"""What a command can ask of a running gateway before it has imported what its record takes.

Needs neither the registry's ORM nor the settings. Where anything is unusual there is no answer, and the
stage does the whole and says what it is. Not here: everything else that is asked (`admin.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tomllib
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from stages.errors import RtrlError
from stages.target.endpoint import Endpoint, running_endpoint
from stages.workspace import SETTINGS_FILE, Workspace

HINT_S = 1.0  # patience with a gateway that is only told something


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
    environment says otherwise."""
    try:
        settings = tomllib.loads((root / SETTINGS_FILE).read_text(encoding="utf-8"))
        line = settings.get("workspace", {}).get("line", "auto")
    except (OSError, ValueError, AttributeError):
        return None
    changed = any("__" in name and name.startswith("RTRL_") for name in os.environ)
    return None if endpoint is None or line != endpoint.line or changed else settings


def served(endpoint: Endpoint) -> dict[str, Any] | None:
    """What the gateway says that it serves. As `post` otherwise."""
    return _ask(endpoint, "GET", "/admin/served", None, HINT_S)


def post(endpoint: Endpoint, path: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
    """The admin listener's answer; None when it refuses. Raises OSError, HTTPException, ValueError."""
    return _ask(endpoint, "POST", path, json.dumps(body).encode(), timeout_s)


def _ask(
    endpoint: Endpoint, method: str, path: str, body: bytes | None, timeout_s: float
) -> dict[str, Any] | None:
    if endpoint.admin_socket:
        connection = HTTPConnection("admin", timeout=timeout_s)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(timeout_s)
        connection.sock.connect(endpoint.admin_socket)
    else:
        connection = HTTPConnection(endpoint.admin_url.removeprefix("http://"), timeout=timeout_s)
    with contextlib.closing(connection):
        headers = {"authorization": f"Bearer {endpoint.admin_key}", "content-type": "application/json"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        document = json.loads(answer.read())
    return dict(document) if answer.status < 300 else None
