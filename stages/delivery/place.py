"""URLs of stores say where, never with what credentials: settings, records and logs hold them. Light."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"//[^/@]*:[^/]*@")


def place(url: str) -> str:
    """The URL as it is. Raises ValueError, which does not repeat it, when it holds more than a place."""
    if _PASSWORD.search(url) or "?" in url:
        raise ValueError(
            "the URL of a store holds no credentials and no query: they go into the environment "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...)"
        )
    return url
