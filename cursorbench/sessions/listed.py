"""Logs that are one list of their records: as exports of services, hooks of clients and `jq -s` write them.

One that is whole and fits into memory is read as a document. Else, too long or damaged, it is a log of lines:
one that has a line for each member is that but for the commas, any other is written anew before it is read.
Not for: pages that services answer with (`records.py`).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cursorbench.scratch import scratch
from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import BYTE_ORDER_MARK, MAX_LINE, json_document, parsed

_LOOKED_AT = 64  # bytes, for how a file begins
_PIECE = 1 << 20  # bytes that are read at a time; more where a member is longer
_OPENS = re.compile(r"\s*\[(?=\s*\{)")
_AS_IT_IS = ("utf-8", "surrogateescape")  # bytes that are no UTF-8 cost their record, not all of them
_MEMBER = re.compile(r"\s*,?\s*(?=\S)")
_BLANK = " \t\r\n\0"


def members(path: Path) -> list[Any] | None:
    """Those of a file that is a list; None for any other, one that is damaged or too long among them."""
    with path.open("rb") as file:
        begins = file.read(_LOOKED_AT).removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b"["
    whole = json_document(path) if begins else None
    return whole if isinstance(whole, list) else None


def is_by_line(path: Path) -> bool:
    """Whether it begins as a list with a line for each member, the bracket before it or on one of its own."""
    with path.open("rb") as file:
        if not _OPENS.match(_text(file.read(_LOOKED_AT))):
            return False
        file.seek(0)
        text = _text(file.read(_PIECE))
    begins = _OPENS.match(text)
    one = _member(text, begins.end()) if begins else None
    if one is None or "\n" in text[one.start : one.end]:
        return False
    return not text[one.end :].partition("\n")[0].strip(_BLANK + ",]")


def by_line(
    told: Iterable[tuple[Place, bytes] | Quarantined], *, backwards: bool
) -> Iterator[tuple[Place, bytes] | Quarantined]:
    """The lines of such a list without what stands around their members. Cut off is one without an end."""
    closed, place = None, Place("")
    for found in told:
        if isinstance(found, Quarantined):
            yield found
            continue
        place, line = found
        if closed is None or not backwards:
            closed = line.endswith(b"]")
        if one := _of_line(line):
            yield place, one
    if not closed:
        yield Quarantined(Place(place.file), "the list is cut off")


def _text(begin: bytes) -> str:
    return begin.removeprefix(BYTE_ORDER_MARK).decode(*_AS_IT_IS)


def _of_line(line: bytes) -> bytes:
    """b"" for a bracket alone."""
    line = line.strip(b", \t")
    whole = (line[:1] == b"{" and line[-1:] == b"}") or not isinstance(parsed(line), str)
    return line if whole else line.removeprefix(b"[").removesuffix(b"]").strip(b", \t")


def first_of_list(head: bytes, most: int) -> list[dict[str, Any]]:
    """The first objects of a list of which `head` is the beginning; none where it begins no list."""
    text = head.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").lstrip()
    found, at = list[dict[str, Any]](), 1
    while text[:1] == "[" and len(found) < most and (one := _member(text, at)):
        at = one.end
        if isinstance(one.value, dict):
            found.append(one.value)
    return found


@contextmanager
def lined(path: Path) -> Iterator[tuple[Path, str]]:
    """The file, or one with a line for each member of the list that it is; and why not for all."""
    with path.open("rb") as begun:
        is_list = _OPENS.match(_text(begun.read(_LOOKED_AT)))
    if not is_list or is_by_line(path) or members(path) is not None:
        yield path, ""
        return
    with scratch("rtrl-list-") as folder:
        file = folder / path.name
        yield file, _write(path, file)


class _Member(NamedTuple):
    value: Any
    end: int
    start: int


def _member(text: str, at: int) -> _Member | None:
    """The next one, behind the one that ends at `at`; None where none is, or not all of it."""
    found = _MEMBER.match(text, at)
    try:
        return found and _Member(*DECODER.raw_decode(text, found.end()), found.end())
    except (ValueError, RecursionError):
        return None


def _write(path: Path, file: Path) -> str:
    encoding, errors = _AS_IT_IS
    with path.open("rb") as source, file.open("w", encoding=encoding, errors=errors, newline="\n") as out:
        try:
            for text in _texts(source):
                out.write(text.replace("\n", " ").replace("\r", " ") + "\n")  # no string of JSON has any
        except ValueError as error:
            return f"{error}: what is behind is not read"
    return ""


def _texts(source: BinaryIO) -> Iterator[str]:
    """Those of a list's members. Raises ValueError where it is damaged."""
    encoding, errors = _AS_IT_IS
    decode = codecs.getincrementaldecoder(encoding)(errors).decode
    text = decode(source.read(_PIECE).removeprefix(BYTE_ORDER_MARK))
    at = text.index("[") + 1
    while True:
        while one := _member(text, at):
            yield text[one.start : one.end]
            at = one.end
        text = text[at:].lstrip()
        if text.startswith("]"):
            if (text[1:] + decode(source.read(_PIECE))).strip(_BLANK):
                raise ValueError("more stands behind the list")
            return
        if len(text) > MAX_LINE:
            raise ValueError(f"a member of the list is not valid JSON, or longer than {MAX_LINE >> 20} MiB")
        if not (piece := source.read(max(_PIECE, len(text)))):
            raise ValueError("the list is cut off")
        text, at = text + decode(piece), 0


def _no_number(name: str) -> float:
    raise ValueError(name)


DECODER = json.JSONDecoder(parse_constant=_no_number)
