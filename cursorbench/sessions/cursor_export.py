"""Chats that Cursor exports ("Export Transcript"): Markdown with what was written, `cursor_TITLE.md`.

A title, a line of when and by which version, and turns below `**User**` and `**Cursor**`, each behind `---`.
Calls, edits, models and times are nowhere. Not for: the transcripts that Cursor keeps itself (`cursor.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.items import AgentTurn, Place, Quarantined, Read, SessionStart
from cursorbench.sessions.reading import text_lines
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.transcript import Once, Text, trimmed

KIND = "cursor-export"

_BEGIN = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*# [^\r\n]*\r?\n\s*_Exported on [^\r\n]{1,200} from Cursor \([^()\r\n]{1,80}\)_"
)
_VERSION = re.compile(r"_Exported on .{1,200} from Cursor \(([^()]{1,80})\)_\s*$")
_ROLES = {"**User**": "user", "**Cursor**": "agent"}


def recognises(path: Path, head: bytes) -> bool:
    """By its title and the line below it."""
    return _BEGIN.match(head) is not None


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one chat. One that was exported again is told once."""
    once: Once | None = None
    began: dict[str, Any] = {"place": Place(str(path))}
    title = version = ""
    for place, role, text in _turns(path):
        if not role:
            title, found = trimmed(text.lines), _VERSION.search(trimmed(text.lines))
            version, title = (found[1], title[: found.start()]) if found else ("", title)
            continue
        if once is None:  # chats have no ids: two of one title begin otherwise
            digest = blake2b(f"{title}\n{text}".encode(errors="replace"), digest_size=8)
            began["session"] = digest.hexdigest()
            once = Once(seen, began["session"])
            if seen.first(began["session"], "\0start"):
                yield SessionStart(agent="cursor", version=version, **began)
        own = began | {"place": place}
        for item in _said(role, text, own):
            if isinstance(item, Quarantined) or once.new(item):
                yield item
    if once is None:
        yield Quarantined(Place(str(path)), "no header of a turn")


def _turns(path: Path) -> Iterator[tuple[Place, str, Text]]:
    """Where each turn begins, who speaks, and the text; first what is before all, by nobody."""
    begun, role, text, before = Place(str(path)), "", Text(), ""
    for place, line in text_lines(path):
        if before == "---" and (new := _ROLES.get(line.strip())):
            yield begun, role, text
            begun, role, text = place, new, Text()
        else:
            text.add(line)
        before = line.strip() or before
    yield begun, role, text


def _said(role: str, text: Text, own: dict[str, Any]) -> Iterator[Read]:
    words = trimmed(text.lines)
    if text.too_long:
        yield Quarantined(own["place"], "the turn is longer than 64 MiB")
    elif role == "user":
        yield from spoken.turns(words, **own)
    elif words:
        yield AgentTurn(text=words, **own)
