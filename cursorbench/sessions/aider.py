"""Aider's `.aider.chat.history.md`: sessions one after another, without times or ids within.

`#### ` is what the user typed, `> ` what Aider says, anything else the answer. Aider ends the first two with
two blanks, which tells them from headings and quotations in an answer; a session whose lines lost their
blanks is read without that. A Markdown formatter puts blank lines around every `#### ` line: see `_apart`.
Ids of edits are their ordinal in the session. Not for: whose a `#### ` turn is (`aider_typed.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import aider_said as said
from cursorbench.sessions import aider_typed
from cursorbench.sessions.aider_copies import START, ordinals
from cursorbench.sessions.aider_formatted import cut_sessions
from cursorbench.sessions.aider_session import Session
from cursorbench.sessions.items import Place, Quarantined, Read, SessionStart
from cursorbench.sessions.reading import text_lines
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.transcript import Fence, Once, Text

KIND = "aider"

_HEAD = re.compile(rb"^# [Aa]ider chat started at \d{4}-\d\d-\d\d", re.MULTILINE)
_OLDEST = re.compile(r"^# Aider chat started at \d")  # 12 to 17 May 2023, with marks of its own
_NAME = ".aider.chat.history.md"
_NONE = "no Aider chat: no session begins, nothing is typed"
_HELD = 1000  # items without a sign of Aider before them, after which they are believed
_UNDOABLE = 100_000  # commits of earlier sessions that an undo can still be told of


def recognises(path: Path, head: bytes) -> bool:
    """A chat history by its name, or Markdown in which a session starts."""
    name = path.name.lower()
    return name == _NAME or (name.endswith((".md", ".txt", ".history")) and bool(_HEAD.search(head)))


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one history, session by session."""
    once: Once | None = None
    name = ""
    for item in _Reader(path).items():
        if isinstance(item, Quarantined):
            yield item
            continue
        if once is None or isinstance(item, SessionStart):
            once, name = Once(seen, item.session), item.session
        # what an undo takes back may be of an earlier session
        if (once if item.session == name else Once(seen, item.session)).new(item):
            yield item


def _trimmed(line: str) -> bool:
    """Whether it is an empty typed line that has lost the blanks at its end."""
    return line in ("####", "#### ")


class _Reader:
    """Cuts the lines into what the user typed, messages of Aider, and answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session = Session(path.stem.lstrip(".") or path.name, None, Place(str(path)))
        self.begun = False
        self.sign = False  # of Aider: a session began, something was typed, a message known to be its own
        self.ordinals, self.cut = ordinals(path), cut_sessions(path)
        self.commits: dict[str, Any] = {}
        self.kind, self.place, self.text = "", Place(str(path)), Text()
        self.blanks: bool | None = None  # whether Aider's lines end with two blanks; None: not known yet
        self.first = False  # whether the session's first line of Aider's was seen
        self.blank = True  # whether the line before was blank
        self.block = False  # inside SEARCH/REPLACE
        self.gap = 0  # blank lines behind what was typed
        self.formatted = False  # by a Markdown formatter
        self.fence: Fence | None = None  # open in a document, before anything of Aider's
        self.foreign = ""  # what a document is, that is none of Aider's up to here

    def items(self) -> Iterator[Read]:
        """All of them, those told in other files too; of a text that shows no sign of Aider, none."""
        held: list[Read] = []
        for item in self._lines():
            if self.foreign and held:
                yield Quarantined(Place(str(self.path), 1), self.foreign)
                held.clear()
            if self.sign or len(held) >= _HELD:
                yield from held
                held.clear()
                yield item
            else:
                held.append(item)
        if self.sign or len(held) >= _HELD:
            yield from held
        elif held or self.foreign:
            yield Quarantined(Place(str(self.path), 1), self.foreign or _NONE)

    def _lines(self) -> Iterator[Read]:
        last = 0
        oldest = False  # in a session whose form is not read
        for place, line in text_lines(self.path):
            if place.line == last:  # the rest of an endless line is no structure
                if not oldest:
                    self.text.add(line)
                continue
            last = place.line
            if self.blank and _OLDEST.match(line):
                yield from self._end()
                oldest, self.sign = True, True
                yield Quarantined(place, "a session in Aider's form of May 2023")
            elif (found := START.match(line)) and self.blank:
                if self.fence and not self.sign:
                    self.foreign = "an Aider chat inside of another document's code block"
                    return
                yield from self._end()
                self._start(place, found[1])
                oldest = False
            elif not oldest:
                self._document(line)
                yield from self._line(place, line)
            self.blank = not line.strip()
        if not oldest:
            yield from self._end()

    def _start(self, place: Place, time: str) -> None:
        name = time if (n := self.ordinals.get(place.line, 1)) == 1 else f"{time} #{n}"
        while len(self.commits) > _UNDOABLE:
            del self.commits[next(iter(self.commits))]
        self.session = Session(name, said.time_of(time), place, self.commits)
        self.begun, self.first, self.block = True, False, False
        self.blanks = False if place.line in self.cut else None
        if not self.sign and self.path.name.lower() != _NAME:
            self.foreign = "text before the first session, without a sign of Aider"
        self.sign = True

    def _document(self, line: str) -> None:
        """Follow the code blocks of a document that may only have a chat in it; a history's may be cut."""
        if self.sign or self.path.name.lower() == _NAME:
            return
        if self.fence is None:
            self.fence = Fence.opened_by(line)
        elif self.fence.closed_by(line):
            self.fence = None

    def _end(self) -> Iterator[Read]:
        yield from self._flush()
        yield from self.session.close(always=self.begun)

    def _line(self, place: Place, line: str) -> Iterator[Read]:
        kind = self._kind(line)
        if not kind:
            yield from self._plain(place, line)
            return
        if kind == "user" and self.kind == "user" and (self.gap == 0 or self._apart(line)):
            self.formatted = self.gap > 0
            self.gap = 0
            self._more(line[5:])
            return
        yield from self._flush()
        self.sign = self.sign or kind == "user" or said.known(line[2:])
        self._begin(kind, place, line[5:] if kind == "user" else line[2:] if line != ">" else "")
        if kind == "said":
            yield from self._flush()

    def _plain(self, place: Place, line: str) -> Iterator[Read]:
        """A line that neither the user nor Aider begins."""
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
            self.gap += 1

    def _apart(self, line: str) -> bool:
        """Whether a typed line behind a blank one goes on with the message before, in a formatted history.

        Aider writes the lines of a message one below the other, and ends an empty one with three blanks; so
        an empty one with less, between blank lines, is a formatter's doing. Without one of these it is
        another message, as where an answer was stopped in the browser. No command goes on, none begins so.
        """
        if self.gap != 1 or not (self.formatted or _trimmed(line)):
            return False
        ends = (next(iter(self.text.lines), ""), line[5:].rstrip())
        return "<blank>" not in ends and not any(map(aider_typed.is_command, ends))

    def _kind(self, line: str) -> str:
        """`user`, `said` (a message of Aider), `open` (the first line of a longer one), or ""."""
        first = self.blanks is False and not self.kind and self.blank
        if _trimmed(line) and (first or self.kind == "user"):
            return "user"
        mark = "user" if line.startswith("#### ") else "said" if line.startswith("> ") or line == ">" else ""
        return self._marked(mark, line, ended=line.endswith("  ")) if mark else ""

    def _marked(self, mark: str, line: str, *, ended: bool) -> str:
        """What a line is that begins as one of the user's or of Aider's does."""
        counts = self.cut.get(self.session.place.line)
        if mark == "said" and counts is None and (ended or self.blanks is None):
            # the first may be a command line of several lines, which Aider repeats
            self.blanks, self.first = ended if ended or self.first else None, True
        if self.block and not (said.breaks(line) or (mark == "user" and ended and self.blank)):
            return ""
        if mark == "said" and self.blanks is None:
            return "open"
        if not self.blanks:  # the blanks were cut off: only where an answer cannot be meant
            heading = mark == "user" and self.kind == "answer" and counts
            return "" if heading else mark if mark == "user" or self.kind != "answer" or self.blank else ""
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
        self.kind, self.text, self.block, self.gap = "", Text(), False, 0
        if text.too_long:
            yield Quarantined(place, "the turn is longer than 64 MiB")
        elif kind == "user":
            yield from self.session.user(place, "\n".join(text.lines))
        elif kind == "answer":
            yield from self.session.answer(place, text.lines)
        elif kind:
            yield from self.session.message(place, "\n".join(text.lines).strip())
