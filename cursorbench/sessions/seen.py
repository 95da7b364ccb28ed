"""Which lines were read already: cumulative transcripts repeat a session in file after file."""

from __future__ import annotations

from hashlib import blake2b


class Seen:
    """Lines by session and id, over all files of one reading. Eight bytes of digest a line are kept."""

    def __init__(self) -> None:
        self._known: set[int] = set()

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


def _key(session: str, line_id: str) -> int:
    digest = blake2b(f"{session}\0{line_id}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
