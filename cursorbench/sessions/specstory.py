"""SpecStory transcripts: Markdown written of sessions in Cursor, Copilot, Claude Code, Codex and others.

All generations: a comment or a heading `## SpecStory` first, or neither; headers with and without times;
tools as `<tool-use>`, behind a line with their name, as `<details>` or as bare diffs. A
transcript may quote other transcripts; what stands in a tool's closed code block, and a header older than the
session, is a quotation. `specstory_tools` reads the tool blocks. Calls have no ids in these logs: theirs is
their ordinal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import specstory_cursor, specstory_stops, spoken
from cursorbench.sessions.items import AgentTurn, Place, Quarantined, Read, SessionStart
from cursorbench.sessions.reading import text_lines
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.specstory_begins import HEADS, is_tag, mode_of, tool_of
from cursorbench.sessions.specstory_head import Header, Known, header_of, is_transcript
from cursorbench.sessions.specstory_tools import Call, items_of, old_tool
from cursorbench.sessions.transcript import Fence, Once, Text, trimmed

KIND = "specstory"

_DAY = 86_400_000
_MESSAGE = re.compile(r"^<!-- message-id: (\S+) -->\s*$")
_SUMMARY = re.compile(r"^\s*(?:<details>)?\s*<summary>(.*)$")


def recognises(path: Path, head: bytes) -> bool:
    """A file with SpecStory's first lines; or Markdown that has a title and then the header of a turn."""
    return is_transcript(head, titled=path.suffix.lower() == ".md")


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one transcript."""
    reader = _Reader(path)
    if reader.known.is_told(seen):
        yield Quarantined(Place(str(path)), "another form of transcript tells this session")
        return
    once = Once(seen, reader.known.session)
    for item in specstory_stops.told(reader.items()):
        if isinstance(item, Quarantined) or once.new(item):
            yield item


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path, self.known = path, Known(path)
        self.head: Header | None = None
        self.text, self.thinking = Text(), Text()
        self.call: Call | None = None
        self.body, self.mode = Text(), ""  # "", "think", "tool", "named", "details", "diff"
        self.fence: Fence | None = None
        self.calls, self.sidechain = 0, False
        self.last, self.again = "", False  # the message's last call; whether a block may show it once more
        self.expanded = spoken.Expanded()
        self.before = ""  # the last line that was not blank
        self.after_diff = False  # whether that line ended a bare diff
        self.latest: int | None = None

    def items(self) -> Iterator[Read]:
        """All of them, those told in other files too."""
        known = self.known
        yield SessionStart(
            session=known.session, at=known.start, place=Place(str(self.path)), agent=known.agent
        )
        last = 0
        for place, line in text_lines(self.path):
            if place.line == last:  # the rest of an endless line is no structure
                (self.body if self.call else self.text).add(line)
                continue
            last = place.line
            bare = self.mode == "diff"
            yield from self._line(place, line)
            if line.strip():
                self.before, self.after_diff = line, bare and self.call is None
        yield from self._end_turn()
        if self.head is None:
            yield Quarantined(Place(str(self.path)), "no header of a turn")

    def _line(self, place: Place, line: str) -> Iterator[Read]:
        head = header_of(line, place, self.known.session) if line.startswith(HEADS) else None
        if head and self._counts(head):
            yield from self._end_turn()
            yield from self._begin(head)
        elif self.head is None:
            return
        elif self.mode == "think":
            self._think(line)
        elif self.mode:
            yield from self._in_tool(place, line)
        else:
            yield from self._in_text(place, line)

    def _counts(self, head: Header) -> bool:
        """Whether a header begins a turn of this session rather than being quoted.

        Outside of tools an open code block may be a mistake. Inside one, a quotation cannot be newer than the
        turn that quotes it, so a newer header tells that the block's end is missing.
        """
        if self.call is not None and self.fence is not None:
            return head.at is not None and self.latest is not None and head.at > self.latest
        return head.at is None or self.known.start is None or head.at > self.known.start - _DAY

    def _begin(self, head: Header) -> Iterator[Read]:
        if head.sidechain and not self.sidechain:
            self.sidechain = True
            own: dict[str, Any] = {"session": head.session, "at": head.at, "place": head.place}
            yield SessionStart(agent=self.known.agent, parent=self.known.session, **own)
        self.head, self.last = head, ""
        if head.at is not None:
            self.latest = max(head.at, self.latest or 0)

    def _in_text(self, place: Place, line: str) -> Iterator[Read]:
        assert self.head is not None
        if self.before.startswith(HEADS) and not self.text.lines and (found := _MESSAGE.match(line)):
            self.head.id = found[1]
            return
        if self.fence is not None and not (self.before == "---" and is_tag(line)):
            if self.fence.closed_by(line):
                self.fence = None
            self.text.add(line)
        elif self.head.role == "agent" and self._opens(line, place.line):
            yield from self._open(place, line)
        else:
            fence = Fence.opened_by(line)
            self.fence = fence if fence and self.known.closings.of_fence(fence, place.line) else None
            self.text.add(line)

    def _opens(self, line: str, number: int) -> str:
        """The mode that a line of an agent's text begins."""
        return mode_of(line, number, self.known, self.before, after_diff=self.after_diff)

    def _open(self, place: Place, line: str) -> Iterator[Read]:
        mode = self._opens(line, place.line)
        if mode == "think":
            self.mode = mode
            if rest := re.sub(r"^<think>(?:<details>(?:<summary>.*?</summary>)?)?", "", line).strip():
                self._think(rest)
            return
        if mode == "details":
            self.mode, self.body, self.call = "details", Text(), self._call(place, "", "", "")
            self.body.add(line)
            if found := _SUMMARY.match(line):
                self._summary(found[1])
            return
        self.again = mode == "tool" and specstory_cursor.may_repeat(self.known.agent, line)
        if not self.again:
            yield from self._said()
        self.fence = None
        name, kind = tool_of(mode, line)
        self.call, self.body = self._call(place, name, kind, line if mode == "read" else ""), Text()
        self.mode = mode
        if mode == "diff":
            self.fence = Fence("`", 3, "diff")
            self.body.add(line)
        elif mode == "read" or (mode == "tool" and not self.known.closings.of_tag("</tool-use>", place.line)):
            self.call.finished = mode == "read"
            yield from self._done()

    def _call(self, place: Place, name: str, kind: str, summary: str) -> Call:
        assert self.head is not None
        head, agent = self.head, self.known.agent
        return Call(head.session, "", head.at, place, name, kind, summary, model=head.model, agent=agent)

    def _think(self, line: str) -> None:
        end = re.search(r"(?:</details>)?</think>\s*$", line)
        rest = line[: end.start()] if end else line
        if not end or rest.strip():
            self.thinking.add(re.sub(r"^\s*</?details>\s*$|<summary>.*?</summary>", "", rest))
        self.mode = "" if end else "think"

    def _in_tool(self, place: Place, line: str) -> Iterator[Read]:
        assert self.call is not None
        strict = self.fence is not None and self.fence.length > 3  # in three nothing was escaped
        if self.mode == "diff":
            self.body.add(line)
            if self.fence is not None and self.fence.closed_by(line):
                yield from self._done()
        elif not strict and line.startswith(("</details></tool-use>", "</tool-use>")):
            yield from self._done()
        elif self.mode == "details" and self.fence is None and line.startswith("</details>"):
            yield from self._end_details(line)
        elif self.fence is None and self.mode == "tool" and is_tag(line):
            self.call.finished = False
            yield from self._done()
            yield from self._open(place, line)
        elif self.fence is None and self.mode == "named" and (line == "---" or self._opens(line, place.line)):
            yield from self._end_named(place, line)
        else:
            self._inside(place, line)

    def _inside(self, place: Place, line: str) -> None:
        assert self.call is not None
        if not self.call.summary and self.fence is None and (found := _SUMMARY.match(line)):
            self._summary(found[1])
            if self.mode == "details":
                self.body.add(line)
            return
        if self.fence is not None:
            self.fence = None if self.fence.closed_by(line) else self.fence
        elif fence := Fence.opened_by(line):
            self.fence = fence if self.known.closings.of_fence(fence, place.line) else None
        if self.mode == "details" or line.strip() not in ("<details>", "</details>") or self.fence:
            self.body.add(line)

    def _summary(self, text: str) -> None:
        assert self.call is not None
        self.call.summary = text.partition("</summary>")[0].strip() or " "

    def _end_named(self, place: Place, line: str) -> Iterator[Read]:
        """A `---`, or a thought; `<details>` go on to their own end."""
        if self._opens(line, place.line) == "details" and not trimmed(self.body.lines):
            self.mode = "details"
            self._inside(place, line)
            return
        yield from self._done()
        if line != "---":
            yield from self._open(place, line)

    def _end_details(self, line: str) -> Iterator[Read]:
        """`<details>` without a tool's tag is a tool of an old generation, or part of the answer."""
        assert self.call is not None
        own = (self.call.name, self.call.type) if self.call.name else None
        if not (tool := own or old_tool(self.call.summary)):
            for said in [*self.body.lines, line]:
                self.text.add(said)
            self.mode, self.call = "", None
            return
        call, body = self.call, self.body
        yield from self._said()
        self.call, self.body = call, Text()
        for said in body.lines:
            if not re.match(r"\s*<(?:details|summary)>", said):
                self.body.add(said)
        call.name, call.type = tool
        yield from self._done()

    def _done(self) -> Iterator[Read]:
        """The tool's block is over."""
        assert self.call is not None
        call, self.call, self.mode, self.fence = self.call, None, "", None
        again, self.again = self.again, False
        if self.body.too_long:
            yield Quarantined(call.place, "the tool's block is longer than 64 MiB")
            return
        if again and self._is_second(call):
            return
        yield from self._said()
        self.calls, self.last = self.calls + 1, call.name
        call.id, call.body = f"tool-{self.calls}", self.body.lines
        yield from items_of(call)

    def _is_second(self, call: Call) -> bool:
        """Whether a block shows the call before it again; words alone before it are how this one ended."""
        if trimmed(self.body.lines) or not specstory_cursor.is_bare(call.name, call.summary):
            return False
        if not (said := trimmed(self.text.lines)):
            return self.last == call.name
        self.text, self.body.lines = Text(), said.split("\n")
        return False

    def _end_turn(self) -> Iterator[Read]:
        if self.call is not None and self.mode == "details":
            for said in self.body.lines:
                self.text.add(said)
        elif self.call is not None:
            self.call.finished = False
            yield from self._done()
        self.mode, self.call, self.fence = "", None, None
        if self.head is not None:
            yield from self._said(last=True)

    def _said(self, last: bool = False) -> Iterator[Read]:
        """The text so far as an item; a user's also when it is empty (an image, say)."""
        assert self.head is not None
        head, text, thinking = self.head, trimmed(self.text.lines), trimmed(self.thinking.lines)
        too_long = self.text.too_long or self.thinking.too_long
        self.text, self.thinking, self.fence = Text(), Text(), None
        own: dict[str, Any] = {"session": head.session, "id": head.id, "at": head.at, "place": head.place}
        if too_long:
            yield Quarantined(head.place, "the turn is longer than 64 MiB")
        elif head.role == "agent" or head.model:
            if text or thinking:
                yield AgentTurn(text=text, thinking=thinking, model=head.model, **own)
        else:
            automatic = head.automatic or self.expanded.automatic(text, head.at)
            yield from spoken.turns(text, automatic, **own)
