"""Which log tells a session that several have: an agent's own, a transcript of it, what the gateway was sent.

On a disk the kind that tells a session's first answer tells all its turns; what another kind has of them is
left out, and said to be. So is a sub-agent's session where its parent is told by another kind. Agents' own
logs are read first (`source.py`), so theirs is what counts. What was sent of a session that the disk has is
left out: exports cut texts and arguments short. Feedback, commits and who wrote a line may come from
anywhere.

Not for: one line in several files (`cursorbench/sessions/seen.py`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeGuard

import msgspec

from cursorbench.sessions import items as said
from stages.collect.logs.names import is_unique
from stages.inbox.records import NOBODY, Sender

SECOND_HAND = frozenset({"specstory", "otel", "git-ai"})  # written of sessions that agents log themselves
LEFT_OUT = "another kind of log tells this session"
ON_DISK = "a log on the disk tells this"
# Entire holds its agents' own logs, whose lines have the same ids there
_ONE = frozenset({"entire", "claude-code", "codex", "copilot-cli", "opencode"})
_NAMELESS = "continue"  # its edits, calls and completions name no session: they are compared one by one
_AT_ONCE = 10_000  # ms; Continue writes the time of each of its destinations
_ANSWERS = (said.AgentTurn, said.ToolUse, said.Completion)
_TOLD = (said.SessionStart, said.UserTurn, said.ToolEnd, said.Edit, said.Interrupt, *_ANSWERS)


class Tellers:
    """Takes all items in their order, the disk's first. Sessions whose names are not the same in all kinds
    are left alone.

    Args:
        sent: some items were received, and are compared with the disk's.
    """

    def __init__(self, *, sent: bool = False) -> None:
        self._sent = sent
        self._kinds: dict[tuple[str, str], str] = {}  # by sender and session
        self._children: set[tuple[str, str, str]] = set()  # sub-agents' sessions of kinds that tell nothing
        self._left_out: set[tuple[str, str, str]] = set()
        self._alike: set[tuple[bytes, int]] = set()  # the disk's items, and about when they were
        self._place = said.Place("")  # of the last record that was left out

    def take(self, kind: str, item: said.Read, sender: Sender) -> said.Read | None:
        """The item; None where another log tells its session, at the first turn of it the reason."""
        if isinstance(item, said.Feedback) or (kind == _NAMELESS and _is_nameless(item)):
            again = self._again(item, sender)
            return self._said_once(item.place) if again else item
        if not isinstance(item, _TOLD):
            return item
        copy = sender.mark, kind, item.session
        if isinstance(item, said.SessionStart) and item.parent and self._elsewhere(kind, item.parent, sender):
            self._children.add(copy)
        if copy in self._children or self._elsewhere(kind, item.session, sender):
            if isinstance(item, said.SessionStart) or copy in self._left_out:
                return None
            self._left_out.add(copy)
            return said.Quarantined(item.place, ON_DISK if self.on_disk(item, sender) else LEFT_OUT)
        if isinstance(item, _ANSWERS) and is_unique(item.session):
            self._kinds.setdefault((sender.mark, item.session), kind)
        return item

    def on_disk(self, item: said.Read, sender: Sender) -> bool:
        """Whether this was sent, of a session that the disk has: what is said of it is said of that one."""
        return sender != NOBODY and isinstance(item, said.Item) and (NOBODY.mark, item.session) in self._kinds

    def _elsewhere(self, kind: str, session: str, sender: Sender) -> bool:
        """Whether another log tells this session."""
        if sender != NOBODY and (NOBODY.mark, session) in self._kinds:
            return True
        teller = self._kinds.get((sender.mark, session), kind)
        return teller != kind and not {teller, kind} <= _ONE

    def _again(self, item: said.Item, sender: Sender) -> bool:
        """Whether the disk has what was sent here, and counts by itself, at the same time."""
        if not self._sent:
            return False
        bare = msgspec.structs.replace(item, at=None, place=said.Place(""))
        alike = blake2b(repr(bare).encode(errors="replace"), digest_size=16).digest()
        then = (item.at or 0) // _AT_ONCE
        if sender == NOBODY:
            self._alike.add((alike, then))
            return False
        return any((alike, near) in self._alike for near in (then - 1, then, then + 1))

    def _said_once(self, place: said.Place) -> said.Quarantined | None:
        """That a record was left out, at the first item of it."""
        again, self._place = place == self._place, place
        return None if again else said.Quarantined(place, ON_DISK)


def _is_nameless(item: said.Read) -> TypeGuard[said.Item]:
    """Whether it is an item of no session that counts by itself."""
    return isinstance(item, _TOLD) and not item.session and not isinstance(item, said.SessionStart)
