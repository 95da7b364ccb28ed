"""Reading files of any size in bounded memory: lines with their numbers, JSON objects, times.

What cannot be read becomes a `Quarantined` with file, line and reason, and reading goes on behind it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from cursorbench.sessions.items import Place, Quarantined

MAX_DOCUMENT = 256 << 20  # bytes of a format that is one document
MAX_LINE = 64 << 20  # bytes; longer lines are quarantined, and only so much of one is ever in memory
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what some editors and shells put before UTF-8
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")  # its marks; and JSON without one
_ARCHIVE = re.compile(r"\.(?:zip|tgz|tar(?:\.(?:gz|zstd?|bz2|xz))?)$")
_SQUEEZED = (b"\x1f\x8b", b"(\xb5/\xfd", b"BZh", b"\xfd7zX")
_LFS = b"version https://git-lfs.github.com/spec/"  # what a clone has in place of a file
PROTOBUF = "the file is OTLP as protobuf: have the collector write it as JSON (format: json)"
_OF_LOGS = re.compile(r"\.(?:jsonl?|ndjson|md|traj)(?:\.\w+)?$")  # of other files it says nothing
_TAR_AT = 257  # where the mark of a tar archive stands
_DATABASES = {
    "opencode.db": "OpenCode's own database: name what `opencode export` writes of its sessions instead",
    "sessions.db": "goose's own database: name what `goose session export --format json` writes instead",
    "state.vscdb": "an editor's database: name Cursor's agent-transcripts or VS Code's chatSessions instead",
    "store.db": "Cursor's own database: name its agent-transcripts instead",
}
_DECODER = msgspec.json.Decoder()


def unreadable(path: Path) -> str:
    """Why a file that may be a log is not read; "" for nothing. Raises OSError when it cannot be opened.

    UTF-16 is what PowerShell's `>` writes; people send archives, and keep large logs in Git LFS. The
    collector writes protobuf where it is told to.
    """
    with path.open("rb") as file:
        head = file.read(_TAR_AT + 5)
    if head[:2] in _UTF_16:
        return "the file is UTF-16, not UTF-8: convert it"
    if head.startswith(_LFS) and _OF_LOGS.search(path.name):
        return "the file is in Git LFS and not here: git lfs pull"
    if head[:1] == b"\0" and head[4:5] == b"\n" and int.from_bytes(head[:4], "big") < path.stat().st_size:
        return PROTOBUF  # each export behind its size
    packed = head.startswith((b"PK\3\4", *_SQUEEZED)) or head[_TAR_AT:] == b"ustar"
    if packed and _ARCHIVE.search(path.name):
        return "the file is an archive: unpack it"
    return _DATABASES.get(path.name, "") if head.startswith(b"SQLite format 3\0") else ""


def lines(path: Path, max_line: int = MAX_LINE) -> Iterator[tuple[Place, bytes] | Quarantined]:
    """Each line without its end, blank ones left out. Raises OSError when the file cannot be read at all."""
    number = 0
    with path.open("rb") as file:
        while line := file.readline(max_line):
            number += 1
            if len(line) == max_line and not line.endswith(b"\n"):
                _skip(file, max_line)
            if found := _line(line, Place(str(path), number), max_line):
                yield found


def lines_backwards(path: Path, max_line: int = MAX_LINE) -> Iterator[tuple[Place, bytes] | Quarantined]:
    """The same from the last line to the first; eight bytes a line are kept, where it begins."""
    starts = array("Q")
    with path.open("rb") as file:
        while True:
            start = file.tell()
            if not (line := file.readline(max_line)):
                break
            starts.append(start)
            if not line.endswith(b"\n"):
                _skip(file, max_line)
        for number in range(len(starts), 0, -1):
            file.seek(starts[number - 1])
            if found := _line(file.readline(max_line), Place(str(path), number), max_line):
                yield found


def _line(line: bytes, place: Place, max_line: int) -> tuple[Place, bytes] | Quarantined | None:
    """A line as it is passed on; None for a blank one."""
    if len(line) == max_line and not line.endswith(b"\n"):
        return Quarantined(place, f"the line is longer than {max_line >> 20} MiB")
    line = line.strip(b"\r\n\x00\t ")
    return (place, line.removeprefix(BYTE_ORDER_MARK)) if line else None


def _skip(file: BinaryIO, max_line: int) -> None:
    """Go on behind the end of a line whose beginning was read."""
    while (rest := file.readline(max_line)) and not rest.endswith(b"\n"):
        pass


def text_lines(path: Path, max_line: int = MAX_LINE) -> Iterator[tuple[Place, str]]:
    """Each line of a text, blank ones too, without its end; bytes that are no UTF-8 become U+FFFD.

    Zeros at either end of one are what a crash leaves of a file, and no text. A longer line comes in pieces
    of `max_line` bytes with the same place.
    """
    number, whole = 0, True
    with path.open("rb") as file:
        while line := file.readline(max_line):
            number += whole
            whole = line.endswith(b"\n")
            yield (
                Place(str(path), number),
                line.decode("utf-8", "replace").rstrip("\r\n\0").lstrip("\0").removeprefix("\ufeff"),
            )


def json_document(
    path: Path, max_bytes: int = MAX_DOCUMENT, behind: re.Pattern[bytes] | None = None
) -> dict[str, Any] | list[Any] | Quarantined:
    """One JSON document, `behind` what else is said first. It has to fit into memory."""
    size = path.stat().st_size
    if size > max_bytes:
        return Quarantined(Place(str(path)), f"the document is larger than {max_bytes >> 20} MiB")
    data = path.read_bytes().removeprefix(BYTE_ORDER_MARK).rstrip(b"\0")
    value = parsed(data[before.end() :] if behind and (before := behind.match(data)) else data)
    if isinstance(value, dict | list):
        return value
    return Quarantined(Place(str(path)), value if isinstance(value, str) else "not a JSON document")


def parsed(data: bytes) -> Any:
    """The JSON value; a string (which no log has as a whole line) says why there is none."""
    try:
        value = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "not valid JSON"
    return "not a JSON object" if isinstance(value, str) else value


def json_value(value: object) -> Any:
    """The value of a field that some writers have as text of JSON; what is no text is it already."""
    return parsed(value.encode(errors="replace")) if isinstance(value, str) else value


def json_or_text(value: object) -> Any:
    """The same, and a text that is no JSON, or only a JSON string, is itself."""
    found = json_value(value)
    return value if isinstance(found, str) else found


def nested_or_text(value: object) -> Any:
    """The same of a text of an object or a list only: what else it says is text, as `12` of a prompt is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    return json_or_text(value)


def milliseconds(value: object) -> int | None:
    """Milliseconds since the epoch of what logs call a time; None for what is none.

    ISO 8601 with or without zone (UTC then, also where it says so), with a blank for the T; numbers by their
    size: seconds, milliseconds, microseconds or nanoseconds. What is not after 1970 is a language's zero
    (Go's is the year 1), no time.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if len(text) < 40 and text.replace(".", "", 1).isdecimal():
            value = float(text) if "." in text else int(text)
        else:
            return _iso(text)
    if not isinstance(value, int | float) or not 0 < value < 1e20:
        return None
    for limit, factor in ((1e11, 1000), (1e14, 1), (1e17, 1e-3)):
        if value < limit:
            return int(value * factor)
    return int(value // 1_000_000)


def _iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        at = int(moment.timestamp() * 1000)
    except (OverflowError, ValueError):
        return None
    return at if at > 0 else None


def text_of(value: object) -> str:
    """A field that should be text: itself, or "" when it is anything else."""
    return value if isinstance(value, str) else ""


def table_of(value: object) -> dict[str, Any]:
    """A field that should be a table: itself, or an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """A field that should be a list: itself, or an empty one."""
    return value if isinstance(value, list) else []
