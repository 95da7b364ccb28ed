"""Whose certificates a client of ours trusts, for `verify` of httpx.

Not for listeners (`stages/gateway/tls.py`).
"""

from __future__ import annotations

import ssl
from functools import cache


def trusted(url: str) -> ssl.SSLContext | bool:
    """Nobody's for plain HTTP, where none is asked for; else those of the machine (True).

    httpx reads all of the machine's certificates for each client that is made, 20 ms each, also for http.
    """
    return nobody() if url.startswith("http:") else True


@cache
def nobody() -> ssl.SSLContext:
    """A context that refuses every server."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
