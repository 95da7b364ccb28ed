"""JSON objects of a damaged line: two that share one, the whole one behind a torn one, halves of characters.

A client that was killed while it wrote, or two that write the same log, leave lines without an end between
them; one that cuts texts at a number of UTF-16 units leaves half a character. The good part is no less good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import indented, listed
from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.listed import DECODER
from cursorbench.sessions.reading import lines, lines_backwards, parsed

_TRIES = 100  # beginnings of objects that are tried in one line
_LENGTHS = 16  # of the line, that are read for that: torn objects within each other are read to the same end
_LONGEST = 4 << 20  # bytes; a damaged line that is longer is not mended
_MOST = 1000  # objects of one line
_BLANK = re.compile(r"\s*")
_BEGINNING = re.compile(r'\{\s*"\w+"\s*:')
_ESCAPE = re.compile(
    rb"\\(?:(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]..)|(u[dD][89a-fA-F]..)|.)", re.DOTALL
)


def json_lines(
    path: Path, is_line: Callable[[object], bool], *, backwards: bool = False
) -> Iterator[tuple[Place, dict[str, Any]] | Quarantined]:
    """The JSON objects of a file of lines, and what cannot be read; `is_line` as for `objects`.

    What a hook or `jq -s` made of such a file, one list of its objects, is read as they are; so are indented
    ones (`indented.py`). `backwards` begins with the last. Raises OSError when it cannot be read at all.
    """
    if (members := listed.members(path)) is not None:
        for one in reversed(members) if backwards else members:
            place = Place(str(path))
            yield (place, one) if isinstance(one, dict) else Quarantined(place, "not a JSON object")
        return
    if (told := indented.lines_of(path)) is None:
        told = (lines_backwards if backwards else lines)(path)
    elif backwards:
        told = reversed(list(told))
    if listed.is_by_line(path):
        told = listed.by_line(told, backwards=backwards)
    for found in told:
        if isinstance(found, Quarantined):
            yield found
            continue
        place, line = found
        for one in objects(line, is_line):
            yield (place, one) if isinstance(one, dict) else Quarantined(place, one)


def objects(line: bytes, is_line: Callable[[object], bool]) -> Iterator[dict[str, Any] | str]:
    """The objects of a line; a string is the reason why there is none, or none but those before it.

    Behind what cannot be read only objects that are lines by themselves count (`is_line`), up to the end: an
    object may be a part of what was torn.
    """
    value = parsed(line)
    if isinstance(value, dict):
        yield value
    elif not isinstance(value, str):
        yield "not a JSON object"
    elif len(line) > _LONGEST:
        yield value
    else:
        text = _ESCAPE.sub(_whole, line).decode("utf-8", "replace")
        damaged = "\ufffd" if not _is_utf8(line) else ""
        found, end, _ = _row(text, 0, damaged)
        yield from found
        if end < len(text):
            yield value
            yield from _behind(text, end, damaged, is_line)


def _behind(text: str, start: int, damaged: str, is_line: Callable[[object], bool]) -> list[dict[str, Any]]:
    left = _LENGTHS * len(text)
    for tried, beginning in enumerate(_BEGINNING.finditer(text, start + 1)):
        if tried == _TRIES or left < 0:
            break
        found, end, reached = _row(text, beginning.start(), damaged)
        left -= reached - beginning.start()
        if end == len(text) and found and all(map(is_line, found)):
            return found
    return []


def _row(text: str, start: int, damaged: str) -> tuple[list[dict[str, Any]], int, int]:
    """The objects from there on, one behind the other, where the last of them ends, and how far was read."""
    found: list[dict[str, Any]] = []
    reached = start
    while start < len(text) and len(found) < _MOST:
        try:
            value, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            reached = error.pos if isinstance(error, json.JSONDecodeError) else start
            break
        reached = end
        if not isinstance(value, dict) or (damaged and damaged in text[start:end]):
            break
        found.append(value)
        blank = _BLANK.match(text, end)
        start = blank.end() if blank else end
    return found, start, reached


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[2] else escape[0]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
