"""One Aider session: what its turns and messages mean for one another. For `aider`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from cursorbench.sessions import aider_said as said
from cursorbench.sessions import aider_typed
from cursorbench.sessions.aider_edits import Proposed, edits_of, failing, of_file, same
from cursorbench.sessions.aider_thoughts import apart
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Commit,
    Edit,
    Interrupt,
    Place,
    Read,
    SessionStart,
    Status,
    ToolEnd,
    ToolUse,
    UserTurn,
)

_QUESTION = 2_000  # characters; a longer message is no question
_MESSAGES = 10_000  # lines of one error message that are looked at


class Session:
    """Makes items of turns and messages. `commits`: edits by commit, for an undo in this or a later one."""

    def __init__(
        self, name: str, at: int | None, place: Place, commits: dict[str, list[Edit]] | None = None
    ) -> None:
        self.name, self.at, self.place = name, at, place
        self.commits = {} if commits is None else commits
        self.start = {"version": "", "cwd": ""}
        self.begun = False
        self.model, self.editor = "", ""  # the latter: of an architect's editor
        self.hands = False  # whether it is the editor that answers
        self.typed = ""
        self.answered = ""  # the last answer
        self.handed = False  # whether it goes to the editor
        self.instructed = ""  # what was typed at a question, and is told already
        self.said: list[str] = []  # by Aider, since something was typed
        self.waiting = False  # whether the model was called and has not answered yet
        self.stop: Interrupt | None = None  # told behind what the answer had said, which the log has below it
        self.proposed: list[Proposed] = []
        self.applied: list[Edit] = []  # since the last commit; without their texts
        self.failure: list[str] | None = None  # the lines of an error message about edits
        self.failed_at = place
        self.count = 0

    def close(self, always: bool) -> Iterator[Read]:
        """The session is over; `always`: it is told although nothing happened in it."""
        yield from self._stopped()
        yield from self._settle()
        if always:
            yield from self._begin()

    def user(self, place: Place, text: str) -> Iterator[Read]:
        """A `#### ` turn: something was typed, or Aider sent it."""
        yield from self._stopped()
        confirmed = aider_typed.is_confirmed(text)
        if not confirmed:
            yield from self._settle()
        yield from self._begin()
        automatic = self._automatic(text)
        yield UserTurn(session=self.name, place=place, text=text, automatic=automatic)
        if confirmed:  # Aider goes on with what it was at
            return
        self.typed, self.hands = text.strip(), automatic == "plan"
        self.waiting = aider_typed.calls_model(self.typed)
        self.said, self.instructed, self.handed = [], "", False

    def _automatic(self, text: str) -> Automatic:
        """Why nobody typed it, by itself or by what stands before it."""
        if automatic := aider_typed.automatic_of(text, self.typed):
            return automatic
        if self.handed or aider_typed.is_answer(text, self.answered):
            return "plan"
        if self.instructed and text.strip() == self.instructed:
            return "meta"
        return "pasted_output" if aider_typed.is_said(text, "\n".join(self.said)) else ""

    def answer(self, place: Place, lines: list[str]) -> Iterator[Read]:
        """The model answered."""
        yield from self._settle()
        yield from self._begin()
        thinking, lines_said = apart(lines)
        self.answered, self.handed = "\n".join(line for _, line in lines_said), False
        model = self.editor if self.hands and self.editor else self.model
        yield AgentTurn(session=self.name, place=place, text=self.answered, thinking=thinking, model=model)
        yield from self._stopped()
        self.waiting = False
        self.proposed = edits_of([(place.line + n, line) for n, line in lines_said])

    def message(self, place: Place, text: str) -> Iterator[Read]:
        """Aider said something."""
        if not self.begun and self._startup(text):
            return
        if len(self.said) < _MESSAGES:
            self.said.append(text)
        ends = said.APPLIED.match(text) or said.COMMIT.match(text) or said.STOPPED.search(text)
        if self.failure is not None and not ends:
            if len(self.failure) < _MESSAGES:
                self.failure.append(text)
            return
        if said.MALFORMED.match(text) or said.UNMATCHED.match(text):
            yield from self._begin()
            self.failure, self.failed_at, self.waiting = [text], place, True
        elif found := said.APPLIED.match(text):
            yield from self._fail()
            yield from self._apply(place, found[1].strip(), "applied")
        elif found := said.DRY.match(text) or said.SKIPPED.match(text):
            status: Status = "proposed" if said.DRY.match(text) else "rejected"
            yield from self._apply(place, found[1].strip(), status)
        elif found := said.UNDONE.match(text):
            yield from self._undo(place, found[1] or found[2])
        elif found := said.COMMIT.match(text):
            yield from self._fail()  # of an answer of which only some blocks failed
            yield from self._commit(place, found[1], found[2].strip())
        else:
            yield from self._other(place, text)

    def _other(self, place: Place, text: str) -> Iterator[Read]:
        if self._tells_model(text):
            return
        if said.TOKENS.match(text):
            self.waiting = False
        elif said.STOPPED.match(text):
            self.handed = False
            yield from self._fail()
            if self.waiting:
                self.waiting = False
                yield from self._begin()
                self.stop = Interrupt(session=self.name, place=place)
        elif len(text) <= _QUESTION and (asked := said.ASKED.match(re.sub(r"\?\s*\n\s*", "? ", text))):
            yield from self._asked(place, asked["question"], asked["answer"].strip())

    def _stopped(self) -> Iterator[Read]:
        stop, self.stop = self.stop, None
        if stop is not None:
            yield stop

    def _asked(self, place: Place, question: str, answer: str) -> Iterator[Read]:
        own: dict[str, Any] = {"session": self.name, "place": place}
        if said.instructions(question, answer):
            yield from self._begin()
            yield UserTurn(text=answer, **own)
            self.waiting, self.instructed = True, answer
        elif said.hands_on(question, answer):
            self.handed = self.waiting = True
        elif said.goes_on(question, answer):
            self.waiting = True
        elif name := said.refused(question, answer):
            yield from self._begin()
            identity = self._next()
            yield ToolUse(id=identity, name=name, **own)
            yield ToolEnd(id=identity, outcome="rejected", **own)

    def _startup(self, text: str) -> bool:
        """Whether a message belongs to what Aider says of itself before the first turn."""
        if said.CALLED.match(text):  # repeats what `--message` sends, which is a person's
            return True
        if found := said.VERSION.match(text):
            self.start["version"] = found[1]
        elif found := said.FOLDER.match(text):
            self.start["cwd"] = found[1].strip()
        else:
            return self._tells_model(text)
        return True

    def _tells_model(self, text: str) -> bool:
        """Whether a message says who answers, or who an architect's editor is."""
        if found := said.MODEL.match(text):
            self.model = found[1].rstrip(",")
        elif found := said.EDITOR.match(text):
            self.editor = found[1].rstrip(",")
        return found is not None

    def _begin(self) -> Iterator[Read]:
        if not self.begun:
            self.begun = True
            yield SessionStart(session=self.name, at=self.at, place=self.place, agent="aider", **self.start)

    def _next(self) -> str:
        self.count += 1
        return f"edit-{self.count}"

    def _apply(self, place: Place, path: str, status: Status) -> Iterator[Read]:
        """What the answer proposed for this file has this fate; the file alone when it proposed nothing."""
        yield from self._begin()
        mine = of_file([edit for edit in self.proposed if not edit.done], path)
        blocks = [edit for edit in mine if edit.before is not None or edit.diff is not None]
        for edit in blocks or mine[-1:] or [Proposed(path, place.line)]:
            yield from self._told(edit, status, place)

    def _told(self, edit: Proposed, status: Status, place: Place, error: str = "") -> Iterator[Read]:
        edit.done = True
        identity = self._next()
        own: dict[str, Any] = {
            "session": self.name,
            "id": identity,
            "place": Place(place.file, edit.line),
        }
        yield ToolUse(name="edit", **own)
        item = Edit(
            path=edit.path, status=status, before=edit.before, after=edit.after, diff=edit.diff, **own
        )
        yield item
        if error:
            yield ToolEnd(outcome="error", text=error, **own)
        elif status != "proposed":
            yield ToolEnd(outcome="ok" if status == "applied" else "rejected", **own)
        if status == "applied":
            self.applied.append(replace(item, before=None, after=None, diff=None))

    def _fail(self) -> Iterator[Read]:
        """An error message about edits is complete."""
        if self.failure is None:
            return
        messages, self.failure = "\n".join(self.failure).split("\n"), None
        failed = failing(messages)
        if not failed:
            identity = self._next()
            own: dict[str, Any] = {"session": self.name, "id": identity, "place": self.failed_at}
            why = "the answer does not conform to the edit format"
            yield ToolUse(name="edit", invalid=why, **own)
            yield ToolEnd(outcome="error", text=why, **own)  # Aider sends it back: the next answer is another
            return
        for path, searched in failed:
            mine = of_file([e for e in self.proposed if not e.done and same(e, searched)], path)
            edit = next(iter(mine), None)
            edit = edit or Proposed(path, self.failed_at.line)
            error = f"no exact match in {path}"
            yield from self._told(edit, "proposed", self.failed_at, error)
        if any(said.OTHERS.search(line) for line in messages):
            for edit in self.proposed:
                if not edit.done and edit.before is not None:
                    yield from self._told(edit, "applied", self.failed_at)

    def _settle(self) -> Iterator[Read]:
        """A new turn begins: what nothing was said about was proposed only."""
        yield from self._fail()
        proposed, self.proposed = self.proposed, []
        for edit in proposed:
            if not edit.done and (edit.before is not None or edit.diff is not None):
                yield from self._told(edit, "proposed", self.place)

    def _commit(self, place: Place, sha: str, message: str) -> Iterator[Read]:
        yield from self._begin()
        edits, self.applied = self.applied, []
        paths = tuple(dict.fromkeys(edit.path for edit in edits))
        self.commits[sha] = edits
        yield Commit(session=self.name, place=place, sha=sha, message=message, paths=paths)

    def _undo(self, place: Place, sha: str) -> Iterator[Read]:
        """The edits of the commit again, undone; of a commit without known edits only that."""
        yield from self._begin()
        edits = self.commits.pop(sha, [])
        for edit in edits:
            yield Edit(session=edit.session, id=edit.id, place=place, path=edit.path, status="undone")
        if not edits:
            yield Edit(session=self.name, id=sha, place=place, path="", status="undone")
