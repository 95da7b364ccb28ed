"""Which lines were read already: cumulative transcripts repeat a session in file after file."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

_Kept = TypeVar("_Kept")


class Seen:
    """Lines by session and id, over all files of one reading. Eight bytes of digest a line are kept."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._kept: dict[str, Any] = {}

    def first(self, session: str, line_id: str) -> bool:
        """Whether this line is new. A line without an id always is."""
        if not line_id:
            return True
        key = _key(session, line_id)
        if key in self._known:
            return False
        self._known.add(key)
        return True

    def knows(self, session: str, line_id: str) -> bool:
        """Whether this line was read; asking leaves it as it is."""
        return _key(session, line_id) in self._known

    def kept(self, name: str, make: Callable[[], _Kept]) -> _Kept:
        """What a reader notes by this name over all files of one reading, made once; the reader bounds it."""
        if name not in self._kept:
            self._kept[name] = make()
        kept: _Kept = self._kept[name]
        return kept


def _key(session: str, line_id: str) -> int:
    digest = blake2b(f"{session}\0{line_id}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
