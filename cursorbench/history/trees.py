"""The names in a tree object. Not for: reading objects (`repository.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    """One name in a tree."""

    mode: str
    name: str
    oid: str


def entries_of(data: bytes, size: int) -> Iterator[Entry]:
    """A tree object: `mode SP name NUL id`, ids of `size` bytes."""
    at = 0
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        oid = data[end + 1 : end + 1 + size].hex()
        yield Entry(mode.decode(), name.decode("utf-8", "surrogateescape"), oid)
        at = end + 1 + size
