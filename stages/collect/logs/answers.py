"""Which generation an id of a log is of: what comes later, in whatever file, names an answer by it.

Not for: what the reaction is (`turns.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cursorbench.sessions import items as said
from stages.collect.logs.state import Session


class Answer(NamedTuple):
    """The name of a session, a generation of it and that one's episode."""

    session: str
    generation: str
    episode: str


OPEN = Answer("", "", "")  # the last one of the open episode


class Answers:
    """The answers of all sessions by the ids in their logs; two senders' ids are two."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Answer | None] = {}  # None when two answers have it

    def add(self, session: Session, names: Iterable[str], answer: Answer) -> None:
        """An answer with its names, of which some may be empty."""
        for one in ((session.mark, name) for name in names if name):
            self._known[one] = answer if self._known.get(one, answer) == answer else None

    def knows(self, target: str, mark: str, session: Session | None) -> bool:
        """Whether an answer, or several, had that name, or a call of this session."""
        return (mark, target) in self._known or (session is not None and target in session.calls)

    def of(self, target: str, mark: str, session: Session | None) -> Answer | None:
        """The answer of that name, or that made the call of it; None when none has it, or more than one."""
        if session is not None and (call := session.calls.get(target)):
            return Answer(session.name, *call[1:])
        return self._known.get((mark, target))

    def of_edit(self, session: Session, item: said.Edit) -> Answer | None:
        """The answer whose edit this is, by its call or as it names it; None when that is not known."""
        name = item.id if item.id in session.calls else item.answer
        return self.of(name, session.mark, session) if name else OPEN
