"""Which kind of log tells a session that several have: an agent's own, and a transcript or an export of it.

The kind that tells a session's first answer tells all its turns; what another kind has of them is left out,
and said to be. So is a sub-agent's session where its parent is told by another kind. Agents' own logs are
to be read first, so theirs is what counts. Feedback, commits and who wrote a line may come from
anywhere.

Not for: one line in several files (`seen.py`), files of the same bytes (`copies.py`).
"""

from __future__ import annotations

import re

from cursorbench.sessions import items as said

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
LAST = "agent-trace"  # tells commands alone
SECOND_HAND = frozenset(
    {"specstory", "otel", "git-ai", "continue", LAST}
)  # of sessions that agents log themselves
LEFT_OUT = "another kind of log tells this session"
# Entire holds its agents' own logs, whose lines have the same ids there
_ONE = frozenset({"entire", "claude-code", "codex", "copilot-cli", "gemini-cli", "opencode"})
_ANSWERS = (said.AgentTurn, said.ToolUse, said.Completion)
_TOLD = (said.SessionStart, said.UserTurn, said.ToolEnd, said.Edit, said.Interrupt, *_ANSWERS)


def is_unique(session: str) -> bool:
    """Whether this is the session's name in all kinds of logs."""
    return _UUID.fullmatch(session) is not None


class Tellers:
    """Takes all items in their order. Sessions whose names are not the same in all kinds are left alone."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], str] = {}  # by sender and session
        self._children: set[tuple[str, str, str]] = set()  # sub-agents' sessions of kinds that tell nothing
        self._left_out: set[tuple[str, str, str]] = set()

    def take(self, kind: str, item: said.Read, sender: str = "") -> said.Read | None:
        """The item; None where another kind tells its session, at the first turn of it the reason.

        Args:
            sender: by what the sessions of one sender are told from another's; "" for those on this disk.
        """
        if not isinstance(item, _TOLD):
            return item
        copy = sender, kind, item.session
        if isinstance(item, said.SessionStart) and item.parent and self._elsewhere(kind, item.parent, sender):
            self._children.add(copy)
        if copy in self._children or self._elsewhere(kind, item.session, sender):
            if isinstance(item, said.SessionStart) or copy in self._left_out:
                return None
            self._left_out.add(copy)
            return said.Quarantined(item.place, LEFT_OUT)
        if isinstance(item, _ANSWERS) and is_unique(item.session):
            self._kinds.setdefault((sender, item.session), kind)
        return item

    def _elsewhere(self, kind: str, session: str, sender: str) -> bool:
        """Whether another kind tells this session."""
        teller = self._kinds.get((sender, session), kind)
        return teller != kind and not {teller, kind} <= _ONE
