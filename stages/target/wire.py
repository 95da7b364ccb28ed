"""One question to the admin listener of a running gateway. The contract is in `docs/http.md`.

The standard library's client, a connection for each question: a command asks once or twice, and httpx takes
longer to import than everything else that `rtrl deploy` does before it asks. What is asked: `admin.py`, and
`light.py` for what cannot wait.
"""

from __future__ import annotations

import contextlib
import json
import socket
from http.client import HTTPConnection
from typing import Any

from stages.durations import WAIT_S
from stages.target.endpoint import Endpoint


class _UnixConnection(HTTPConnection):
    """To a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("admin", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    endpoint: Endpoint, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> tuple[int, dict[str, Any] | None]:
    """Status of the answer and what it says; None where that is no JSON object.

    Args:
        timeout_s: seconds to wait for a connection, and for each piece of the answer; `WAIT_S` at most.

    Raises:
        OSError, http.client.HTTPException: no answer; TimeoutError, an OSError, none in time.
    """
    timeout_s = min(timeout_s, WAIT_S)
    connection = (
        _UnixConnection(endpoint.admin_socket, timeout_s)
        if endpoint.admin_socket
        else HTTPConnection(endpoint.admin_url.removeprefix("http://"), timeout=timeout_s)
    )
    headers = {"authorization": f"Bearer {endpoint.admin_key}", "content-type": "application/json"}
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        try:
            document = json.loads(answer.read())
        except ValueError:
            document = None
    return answer.status, document if isinstance(document, dict) else None
