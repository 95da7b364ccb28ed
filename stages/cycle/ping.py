"""Tells a monitor that a cycle began and how it ended: URL/start, URL, or URL/EXIT (healthchecks.io's form).

A monitor that does not answer costs a warning, never the cycle.
"""

from __future__ import annotations

import json
from typing import Any


def ping(url: str, what: str, body: dict[str, Any], timeout_s: float) -> str:
    """POST to `url`/`what` (`url` itself for what = ""). Returns a warning, "" when it was heard."""
    if not url:
        return ""
    import httpx

    target = f"{url.rstrip('/')}/{what}" if what else url
    try:
        answer = httpx.post(target, content=json.dumps(body), timeout=timeout_s, follow_redirects=True)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"ping {target} failed: {error or type(error).__name__}"
    return ""
