"""Tells a monitor that a cycle began and how it ended: URL/start, URL, or URL/EXIT (healthchecks.io's form).

A monitor that does not answer costs a warning, never the cycle.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit


def ping(url: str, what: str, body: dict[str, Any], timeout_s: float) -> str:
    """POST to `url`/`what` (`url` itself for what = ""). Returns a warning, "" when it was heard."""
    if not url:
        return ""
    import httpx

    parts = urlsplit(url)  # its path is a secret: whoever knows it can ping
    target = f"{url.rstrip('/')}/{what}" if what else url
    try:
        answer = httpx.post(target, content=json.dumps(body), timeout=timeout_s, follow_redirects=True)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"ping of {parts.scheme}://{parts.hostname} failed: {_why(error)}"
    return ""


def _why(error: Exception) -> str:
    answer = getattr(error, "response", None)
    return f"it answered {answer.status_code}" if answer is not None else type(error).__name__
