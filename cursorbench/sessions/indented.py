"""Logs of lines whose objects are indented, one behind another, as lines again.

So `jq` prints what it was not told to print compact (`-c`), and Python's OpenTelemetry SDK its spans. All
lines of such an object but the first and the last are indented. Not for: one document (`json_document`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import MAX_LINE, text_lines

_HERE = Place("")


def is_indented(texts: Iterable[str]) -> bool:
    """Whether lines begin with an object that has a line for each member."""
    first, second, *_ = [*islice((text for text in texts if text.strip()), 2), "", ""]
    return first.rstrip() == "{" and second[:1] in (" ", "\t")


def lines_of(path: Path) -> Iterator[tuple[Place, bytes] | Quarantined] | None:
    """The objects of such a file, a line each; None for any other."""
    if not is_indented(text for _, text in text_lines(path)):
        return None
    return _put_together(text_lines(path))


def first_lines(head: bytes, most: int) -> list[bytes]:
    """The first objects of such a file's beginning, a line each; none of any other."""
    texts = head.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    told = _put_together((_HERE, text) for text in texts) if is_indented(texts) else iter(())
    return [one[1] for one in islice(told, most) if isinstance(one, tuple)]


def _put_together(texts: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, bytes] | Quarantined]:
    """Each object as one line; a line that is not indented ends one that is torn, and is one by itself."""
    parts, begins, size = list[str](), _HERE, 0
    for place, text in texts:
        line = text.rstrip()
        if parts and (line == "}" or not line or line[0] in " \t"):
            size += len(line)
            parts += [line] if size <= MAX_LINE else []
            if line == "}":
                yield _whole(begins, parts, size)
                parts = []
            continue
        if parts:
            yield _whole(begins, parts, size)
        parts, begins, size = ([line] if line == "{" else []), place, 0
        if line and not parts:
            yield place, line.encode()
    if parts:
        yield _whole(begins, parts, size)


def _whole(place: Place, parts: list[str], size: int) -> tuple[Place, bytes] | Quarantined:
    if size > MAX_LINE:
        return Quarantined(place, f"the object is longer than {MAX_LINE >> 20} MiB")
    return place, " ".join(parts).encode()
