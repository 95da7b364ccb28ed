"""Aider's `.aider.chat.history.md`: sessions one after another, without times or ids within.

`#### ` is what the user typed, `> ` what Aider says, anything else the answer. Aider ends the first two with
two blanks, which tells them from headings and quotations in an answer; a session whose lines lost their
blanks is read without that. Ids of edits are their ordinal in the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import aider_said as said
from cursorbench.sessions.aider_session import Session
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.reading import text_lines
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.transcript import Once, Text

KIND = "aider"

_START = re.compile(r"^# aider chat started at (.{1,80}?)\s*$")
_HEAD = re.compile(rb"^# aider chat started at \d{4}-\d\d-\d\d", re.MULTILINE)
_HELD = 1000  # items without a sign of Aider before them, after which they are believed
_UNDOABLE = 100_000  # commits of earlier sessions that an undo can still be told of


def recognises(path: Path, head: bytes) -> bool:
    """A chat history by its name, or Markdown in which a session starts."""
    name = path.name.lower()
    return name == ".aider.chat.history.md" or (
        name.endswith((".md", ".txt", ".history")) and bool(_HEAD.search(head))
    )


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one history, session by session."""
    once: Once | None = None
    name = ""
    for item in _Reader(path).items():
        session = name if isinstance(item, Quarantined) else item.session
        if once is None or session != name:
            once, name = Once(seen, session), session
        if isinstance(item, Quarantined) or once.new(item):
            yield item


class _Reader:
    """Cuts the lines into what the user typed, messages of Aider, and answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session = Session(path.stem.lstrip(".") or path.name, None, Place(str(path)))
        self.begun = False
        self.sign = False  # of Aider: a session began, something was typed, a message known to be its own
        self.names: dict[str, int] = {}
        self.commits: dict[str, Any] = {}
        self.kind, self.place, self.text = "", Place(str(path)), Text()
        self.blanks: bool | None = None  # whether Aider's lines end with two blanks; None: not known yet
        self.blank = True  # whether the line before was blank
        self.block = False  # inside SEARCH/REPLACE

    def items(self) -> Iterator[Read]:
        """All of them, those told in other files too; of a text that shows no sign of Aider, none."""
        held: list[Read] = []
        for item in self._lines():
            if self.sign or len(held) >= _HELD:
                yield from held
                held.clear()
                yield item
            else:
                held.append(item)
        if self.sign or len(held) >= _HELD:
            yield from held
        elif held:
            yield Quarantined(Place(str(self.path), 1), "no Aider chat: no session begins, nothing is typed")

    def _lines(self) -> Iterator[Read]:
        last = 0
        for place, line in text_lines(self.path):
            if place.line == last:  # the rest of an endless line is no structure
                self.text.add(line)
                continue
            last = place.line
            if (found := _START.match(line)) and self.blank:
                yield from self._end()
                self._start(place, found[1])
            else:
                yield from self._line(place, line)
            self.blank = not line.strip()
        yield from self._end()

    def _start(self, place: Place, time: str) -> None:
        self.names[time] = self.names.get(time, 0) + 1
        name = time if self.names[time] == 1 else f"{time} #{self.names[time]}"
        while len(self.commits) > _UNDOABLE:
            del self.commits[next(iter(self.commits))]
        self.session = Session(name, said.time_of(time), place, self.commits)
        self.begun, self.blanks, self.block = True, None, False
        self.sign = True

    def _end(self) -> Iterator[Read]:
        yield from self._flush()
        yield from self.session.close(always=self.begun)

    def _line(self, place: Place, line: str) -> Iterator[Read]:
        kind = self._kind(line)
        if not kind:
            if self.kind == "answer":
                self.text.add(line)
                self._in_block(line)
            elif self.kind == "open":
                self._more(line)
                if line.endswith("  ") and line.strip():
                    yield from self._flush()
            elif line.strip():
                yield from self._flush()
                self._begin("answer", place, line)
                self._in_block(line)
            elif self.kind == "user":
                yield from self._flush()
            return
        if kind == "user" and self.kind == "user":
            self._more(line[5:])
            return
        yield from self._flush()
        self.sign = self.sign or kind == "user" or said.known(line[2:])
        self._begin(kind, place, line[5:] if kind == "user" else line[2:] if line != ">" else "")
        if kind == "said":
            yield from self._flush()

    def _kind(self, line: str) -> str:
        """`user`, `said` (a message of Aider), `open` (the first line of a longer one), or ""."""
        mark = "user" if line.startswith("#### ") else "said" if line.startswith("> ") or line == ">" else ""
        if not mark:
            return ""
        if self.blanks is None and mark == "said":
            self.blanks = line.endswith("  ")
        ended = line.endswith("  ")
        if self.block and not (said.breaks(line) or (mark == "user" and ended and self.blank)):
            return ""
        if not self.blanks:  # the blanks were cut off: only where an answer cannot be meant
            return mark if mark == "user" or self.kind != "answer" or self.blank else ""
        if ended or mark == "user":
            return mark if ended else ""
        return "open" if said.known(line[2:]) or (self.kind != "answer" and not self.blank) else ""

    def _begin(self, kind: str, place: Place, line: str) -> None:
        self.kind, self.place, self.text = kind, place, Text()
        self._more(line)
        self.block = False

    def _more(self, line: str) -> None:
        self.text.add(line if self.kind == "answer" else line.removesuffix("  "))

    def _in_block(self, line: str) -> None:
        if said.SEARCH.match(line):
            self.block = True
        elif said.REPLACE.match(line):
            self.block = False

    def _flush(self) -> Iterator[Read]:
        """What was collected is complete."""
        kind, text, place = self.kind, self.text, self.place
        self.kind, self.text, self.block = "", Text(), False
        if text.too_long:
            yield Quarantined(place, "the turn is longer than 64 MiB")
        elif kind == "user":
            yield from self.session.user(place, "\n".join(text.lines))
        elif kind == "answer":
            yield from self.session.answer(place, text.lines)
        elif kind:
            yield from self.session.message(place, "\n".join(text.lines).strip())
