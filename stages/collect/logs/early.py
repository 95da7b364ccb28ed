"""Feedback that is read before what it is about: files are read by name, `feedback` before `requests`.

Put aside until all is read, encrypted, in memory up to a limit and then in a file that has no name. Not for:
what it is about (`turns.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cursorbench.sessions.items import Feedback, Place
from stages.collect.logs.spill import Spill
from stages.inbox.records import Sender


class _Put(msgspec.Struct, frozen=True):
    kind: str
    item: Feedback
    user: str
    mark: str


class Early:
    """Feedback put aside; taken out once, in its order."""

    def __init__(self) -> None:
        self._spill = Spill()
        self._count = 0

    def add(self, kind: str, item: Feedback, sender: Sender) -> None:
        """Put one aside, without what no event keeps of it."""
        bare = msgspec.structs.replace(item, place=Place(""), comment="")
        self._spill.add(msgspec.msgpack.encode(_Put(kind, bare, *sender)))
        self._count += 1

    def take(self) -> Iterator[tuple[str, Feedback, Sender]]:
        """(kind, item, who sent it) of all that was put aside."""
        with self._spill:
            for number in range(self._count):
                one = msgspec.msgpack.decode(self._spill.read(number), type=_Put)
                yield one.kind, one.item, Sender(one.user, one.mark)
