"""Tells a monitor that a cycle began and how it ended: URL/start, URL, or URL/EXIT (healthchecks.io's form).

A monitor that does not answer costs a warning, never the cycle.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from stages import addresses, posting


def ping(url: str, what: str, body: dict[str, Any], timeout_s: float) -> str:
    """POST to `url`/`what` (`url` itself for what = ""). Returns a warning, "" when it was heard."""
    if not url:
        return ""
    parts = urlsplit(url)  # a query stays behind what is added to the path
    target = parts._replace(path=f"{parts.path.rstrip('/')}/{what}").geturl() if what else url
    status, why = posting.post(target, body, timeout_s, redirects=True)
    if 200 <= status < 300:
        return ""
    return f"ping of {addresses.host(url)} failed: {f'it answered {status}' if status else why}"
