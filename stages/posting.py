"""A small JSON document posted to somebody else's address, within a time that holds for all of it.

Of the answer nobody wants more than the status. Time-outs of httpx begin anew with every byte, so an answer
that drips kept a cycle for as long as it liked. Not for: what is told, or whether it is tried again
(`stages/monitor/alert.py`, `stages/cycle/ping.py`).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

_JSON = {"content-type": "application/json"}


def post(url: str, body: dict[str, Any], timeout_s: float, *, redirects: bool = False) -> tuple[int, str]:
    """POST as JSON: the status of the answer, and "" or why there is none (status 0).

    Args:
        timeout_s: seconds for connecting, sending and the answer's head together.
        redirects: whether they are followed.
    """
    import httpx

    async def told() -> int:
        async with (
            httpx.AsyncClient(timeout=timeout_s, follow_redirects=redirects) as client,
            client.stream("POST", url, content=json.dumps(body), headers=_JSON) as answer,
        ):
            return answer.status_code

    try:
        return asyncio.run(asyncio.wait_for(told(), timeout_s)), ""
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        return 0, type(error).__name__


def host(url: str) -> str:
    """What may be said of an address, whose path may be a secret: scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or '?'}"
