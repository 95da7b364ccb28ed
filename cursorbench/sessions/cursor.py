"""Cursor's transcripts of its agent: `~/.cursor/projects/FOLDER/agent-transcripts/ID/ID.jsonl`.

A line is a message, or says that a turn ended. What calls gave is nowhere, nor is whether they ended well.
Not for: the text transcripts of older versions, and the databases (`state.vscdb`, `store.db`), which are no
logs.

Source: a transcript among the tests of git-ai-project/git-ai, and what public readers say of those of 2026.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.sessions.chat import Answer, Conversation, Message, message_of
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import Interrupt, Place, Quarantined, Read
from cursorbench.sessions.reading import table_of, text_of
from cursorbench.sessions.records import first_objects, opening
from cursorbench.sessions.seen import Seen

KIND = "cursor"

_ROLES = frozenset({"user", "assistant"})
_OF_ENTIRE = "full.jsonl"  # of a name that says nothing; beside it is a transcript that has the results, too
_HIDDEN = "[REDACTED]"  # in the place of a thought
_ABORTED = "User aborted request"
_TIME = re.compile(
    r"<timestamp>\w+, (\w{3}) (\d\d?), (\d{4}), (\d\d?):(\d\d) ([AP])M \(UTC(?:([+-])(\d\d?)(?::(\d\d))?)?\)"
)
_NAMES = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_MONTHS = {name: n for n, name in enumerate(_NAMES.split(), 1)}


def recognises(path: Path, head: bytes) -> bool:
    """A message with a role beside it and nothing that tells its id."""
    return path.name != _OF_ENTIRE and any(map(_is_message, first_objects(head)))


def _is_message(value: object) -> bool:
    line = table_of(value)
    content = table_of(line.get("message")).get("content")
    return (
        text_of(line.get("role")) in _ROLES
        and isinstance(content, list)
        and not line.keys() & {"type", "id", "uuid"}
    )


def _is_line(value: object) -> bool:
    return _is_message(value) or table_of(value).get("type") == "turn_ended"


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one transcript."""
    transcript = _Transcript(path, seen)
    for found in json_lines(path, _is_line):
        yield from [found] if isinstance(found, Quarantined) else transcript.items(*found)


def _time(text: str) -> int | None:
    """When a message was sent, ms, by the tag that Cursor puts before it; to the minute."""
    if not (found := _TIME.search(text)) or found[1] not in _MONTHS:
        return None
    hour = int(found[4]) % 12 + 12 * (found[6] == "P")
    zone = timedelta(hours=int(found[8] or 0), minutes=int(found[9] or 0)) * (-1 if found[7] == "-" else 1)
    try:
        wall = datetime(int(found[3]), _MONTHS[found[1]], int(found[2]), hour, int(found[5]), tzinfo=UTC)
        return int((wall - zone).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


class _Transcript:
    def __init__(self, path: Path, seen: Seen) -> None:
        self._seen, self._session = seen, path.stem
        self._parent = path.parent.parent.name if path.parent.name == "subagents" else ""
        self._conversation, self._times = Conversation(seen, KIND), Counter[str]()
        self._at: int | None = None
        self._asked = ""  # in the turn that goes on
        self._called = self._tells_ends = False

    def items(self, place: Place, line: dict[str, Any]) -> Iterator[Read]:
        """The items of a line, behind the session's beginning."""
        if line.get("type") == "turn_ended":
            yield from self._ended(place, line)
            return
        message = message_of({**table_of(line.get("message")), "role": line.get("role")})
        if message is None or message.role not in _ROLES:
            yield Quarantined(place, "unknown_type" if "type" in line else "a message with an unknown role")
            return
        if message.role == "user" and not message.results:
            self._at = _time(message.text) or self._at
        yield from opening(self._seen, self._session, place, self._at, agent=KIND, parent=self._parent)
        where: dict[str, Any] = {"at": self._at, "place": place, "times": self._times}
        if message.role == "user":
            message.automatic = "sub_agent" if self._parent else message.automatic
            if self._tells_ends and message.text and message.text == self._asked:  # again, behind a summary
                message.automatic = "continuation"
            self._asked = message.text or self._asked
            yield from self._conversation.request(self._session, [message], None, **where)
            return
        self._called = bool(message.calls)
        if said := self._without_what_is_hidden(message, place):
            yield from self._conversation.request(self._session, [], Answer(message=said), **where)

    def _without_what_is_hidden(self, message: Message, place: Place) -> Message | None:
        text = message.text.strip()
        text = text.removesuffix(_HIDDEN).rstrip() if text.endswith(_HIDDEN) else message.text
        calls = [
            call if call.id else msgspec.structs.replace(call, id=f"{place.line}.{n}")
            for n, call in enumerate(message.calls, 1)
        ]
        return (
            Message("assistant", text, message.thinking, calls) if text or calls or message.thinking else None
        )

    def _ended(self, place: Place, line: dict[str, Any]) -> Iterator[Interrupt]:
        stopped = line.get("status") == "aborted" or text_of(line.get("error")) == _ABORTED
        if stopped and self._asked and self._seen.first(self._session, f"{KIND}:{place.line}:stopped"):
            yield Interrupt(
                session=self._session, at=self._at, place=place, during="tool" if self._called else "answer"
            )
        self._asked, self._called, self._tells_ends = "", False, True
