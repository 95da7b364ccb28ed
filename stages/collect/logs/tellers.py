"""Which kind of log tells a session that several have: an agent's own, and a transcript or an export of it.

The kind that tells a session's first answer tells all its turns; what another kind has of them is left out,
and said to be. So is a sub-agent's session where its parent is told by another kind. Agents' own logs are
read first (`source.py`), so theirs is what counts. Feedback, commits and who wrote a line may come from
anywhere.

Not for: one line in several files (`cursorbench/sessions/seen.py`).
"""

from __future__ import annotations

from cursorbench.sessions import items as said
from stages.collect.logs.names import is_unique
from stages.inbox.records import Sender

SECOND_HAND = frozenset({"specstory", "otel", "git-ai", "continue"})  # of sessions that agents log themselves
LEFT_OUT = "another kind of log tells this session"
# Entire holds its agents' own logs, whose lines have the same ids there
_ONE = frozenset({"entire", "claude-code", "codex", "copilot-cli", "gemini-cli", "opencode"})
_ANSWERS = (said.AgentTurn, said.ToolUse, said.Completion)
_TOLD = (said.SessionStart, said.UserTurn, said.ToolEnd, said.Edit, said.Interrupt, *_ANSWERS)


class Tellers:
    """Takes all items in their order. Sessions whose names are not the same in all kinds are left alone."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], str] = {}  # by sender and session
        self._children: set[tuple[str, str, str]] = set()  # sub-agents' sessions of kinds that tell nothing
        self._left_out: set[tuple[str, str, str]] = set()

    def take(self, kind: str, item: said.Read, sender: Sender) -> said.Read | None:
        """The item; None where another kind tells its session, at the first turn of it the reason."""
        if not isinstance(item, _TOLD):
            return item
        copy = sender.mark, kind, item.session
        if isinstance(item, said.SessionStart) and item.parent and self._elsewhere(kind, item.parent, sender):
            self._children.add(copy)
        if copy in self._children or self._elsewhere(kind, item.session, sender):
            if isinstance(item, said.SessionStart) or copy in self._left_out:
                return None
            self._left_out.add(copy)
            return said.Quarantined(item.place, LEFT_OUT)
        if isinstance(item, _ANSWERS) and is_unique(item.session):
            self._kinds.setdefault((sender.mark, item.session), kind)
        return item

    def _elsewhere(self, kind: str, session: str, sender: Sender) -> bool:
        """Whether another kind tells this session."""
        teller = self._kinds.get((sender.mark, session), kind)
        return teller != kind and not {teller, kind} <= _ONE
