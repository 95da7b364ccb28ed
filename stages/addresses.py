"""Addresses of others that settings name: whether one can be posted to, and what may be said of it.

Not for: posting (`stages/posting.py`), addresses of our own engines and gateways.
"""

from __future__ import annotations

from urllib.parse import urlsplit


def checked(url: str) -> str:
    """The address as given. Raises ValueError, which names nothing of it, for what cannot be one."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname and parts.hostname.encode("idna")) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number, a name that no host has
        named = False
    if not named:
        raise ValueError("is no address: http://HOST or http://HOST:PORT, and a path")
    return url


def host(url: str) -> str:
    """What may be said of an address, whose path may be a secret: scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or '?'}"
