"""Which files and commits a partial clone has, all read at once.

Git before 2.44 looks elsewhere for each one that it lacks, and ends where it may not: half a second of work
for every version of a file. Not for: folders, all of which such a clone has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_LIST = "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname)"


def files_and_commits(printed: Callable[..., Iterator[str]]) -> frozenset[bytes]:
    """Their ids, `packed`. `printed`: `Repository.tokens`."""
    every = (line.partition(" ") for line in printed(*_LIST, end=b"\n"))
    return frozenset(packed(oid) for kind, _, oid in every if kind in ("blob", "commit"))


def packed(oid: str) -> bytes:
    """An id in half the memory; nothing for what is none."""
    try:
        return bytes.fromhex(oid)
    except ValueError:
        return b""
