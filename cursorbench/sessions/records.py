"""JSON records of a log whether it is JSON Lines or one document, and what recognising a format needs.

Also the small things adapters of JSON logs share: a session said once, JSON text of a value, sniffing heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from cursorbench.sessions import calls
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import Place, Quarantined, SessionStart
from cursorbench.sessions.reading import json_document, lines, parsed
from cursorbench.sessions.seen import Seen

_ROWS = {"data", "runs", "events", "rows", "results", "items", "inferences", "feedback"}
_PAGE = _ROWS | {
    *("object", "has_more", "hasMore", "first_id", "last_id", "next", "previous", "next_page", "next_cursor"),
    *("cursor", "cursors", "meta", "metadata", "schema", "pagination", "page", "limit", "offset", "total"),
    *("page_size", "total_pages", "pageSize", "totalPages"),
    *("count", "freshness_state", "realtime_state", "search_cursors", "parsed_query", "error"),
}


def records(path: Path, *, backwards: bool = False) -> Iterator[tuple[Place, dict[str, Any]] | Quarantined]:
    """The JSON objects of a file: one a line, or one document that is an object or a list of them.

    A page of a list, as services answer with one, is its rows. `backwards` begins with the last one.

    Lines are the rule. Only a file whose first line is no object by itself and which is valid JSON as a whole
    is a document; damaged lines therefore never make a document of a log. Objects that share a line are read,
    and half a character, which clients leave where they cut a text, costs a character.
    """
    if _is_document(path) and isinstance(whole := json_document(path), dict | list):
        values = whole if isinstance(whole, list) else rows_of(whole)
        for value in reversed(values) if backwards else values:
            yield _object(value, Place(str(path)))
        return
    for found in json_lines(path, _is_no_line, backwards=backwards):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, line = found
        rows = rows_of(line)
        yield from (_object(row, place) for row in (reversed(rows) if backwards else rows))


def rows_of(value: dict[str, Any]) -> list[Any]:
    """The rows of a page of a list (`{"object": "list", "data": [...]}`); an object that is none itself."""
    names = _ROWS & value.keys()
    if len(names) == 1 and isinstance(rows := value[next(iter(names))], list) and value.keys() <= _PAGE:
        return rows
    return [value]


def _object(value: object, place: Place) -> tuple[Place, dict[str, Any]] | Quarantined:
    return (place, value) if isinstance(value, dict) else Quarantined(place, "not a JSON object")


def oldest_first(
    path: Path, when: Callable[[dict[str, Any]], int | None]
) -> Iterator[tuple[Place, dict[str, Any]] | Quarantined]:
    """`records` in the order of their time (ms, `when`): from the end where they are newest first.

    So databases write them out. It is told by the first 256: later ones are mostly older.
    """
    first = (when(found[1]) for found in islice(records(path), 256) if not isinstance(found, Quarantined))
    steps = [after - before for before, after in pairwise(at for at in first if at is not None)]
    backwards = sum(step < 0 for step in steps) > 3 * sum(step > 0 for step in steps)
    yield from records(path, backwards=backwards)


def _is_no_line(value: object) -> bool:
    """Nothing behind a torn object counts: in these formats a part of a record may look like a whole one."""
    return False


def _is_document(path: Path) -> bool:
    for found in lines(path):
        if isinstance(found, Quarantined):
            return False
        return found[1][:1] in (b"{", b"[") and not isinstance(parsed(found[1]), dict)
    return False


@lru_cache(maxsize=1)  # every adapter asks for those of the same head, which may be long
def first_objects(head: bytes, most: int = 8) -> tuple[dict[str, Any], ...]:
    """The JSON objects among the first lines of a file, or the document that its head is in full."""
    whole = parsed(head.removeprefix(b"\xef\xbb\xbf"))
    if isinstance(whole, dict | list):
        members = whole if isinstance(whole, list) else rows_of(whole)
        return tuple(one for one in members[:most] if isinstance(one, dict))
    lines_ = (
        line.strip(b"\r\x00\t ").removeprefix(b"\xef\xbb\xbf") for line in head.split(b"\n")[: most * 2]
    )
    found = (row for value in map(parsed, lines_) if isinstance(value, dict) for row in rows_of(value))
    return tuple(islice((row for row in found if isinstance(row, dict)), most))


def mentions(head: bytes, *names: str) -> bool:
    """Whether all these names stand in the head as JSON strings: for first lines longer than the head."""
    return head[:1] in (b"{", b"[", b"\xef") and all(f'"{name}"'.encode() in head for name in names)


def opening(seen: Seen, session: str, place: Place, at: int | None, **told: str) -> Iterator[SessionStart]:
    """The `SessionStart` of a session that was not begun yet; nothing for "" (no session told)."""
    if session and seen.first(session, "\0start"):
        yield SessionStart(session=session, at=at, place=place, **told)


def json_text(value: object) -> str:
    """A value as JSON text; a text is taken to be some already. "" for none and what cannot be written."""
    if value is None or isinstance(value, str):
        return value or ""
    return calls.json_text(value)


def first_text(table: dict[str, Any], *names: str) -> str:
    """The first of these fields that is a text with something in it."""
    for name in names:
        value = table.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def number(value: object) -> float | None:
    """A finite number, also from its text; None for anything else. A truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None
