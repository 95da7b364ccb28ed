"""Which of the sessions that began in one second are one. For `aider`.

A history that was appended to itself, by a merge or a tool that keeps files alike, has each session again,
the last one perhaps longer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from cursorbench.sessions.reading import text_lines

START = re.compile(r"^# aider chat started at (.{1,80}?)\s*$")


def ordinals(path: Path) -> dict[int, int]:
    """By the line that a session begins with: which of those of its second it is, counted from 1.

    Two with the same first request and answer are the same; one without an answer is one of its own.
    """
    found: dict[int, int] = {}
    known: defaultdict[str, list[bytes]] = defaultdict(list)
    for line, time, beginning in _beginnings(path):
        of_time = known[time]
        if not beginning or beginning not in of_time:
            of_time.append(beginning)
            found[line] = len(of_time)
        else:
            found[line] = of_time.index(beginning) + 1
    return found


def _beginnings(path: Path) -> Iterator[tuple[int, str, bytes]]:
    """Line, time, and a digest of each session up to its second request; b"" where nothing was answered."""
    line, time, digest = 0, "", blake2b(digest_size=12)
    asked = answered = ended = False
    blank = True
    for place, text in text_lines(path):
        if blank and (start := START.match(text)):
            if line:
                yield line, time, digest.digest() if answered else b""
            line, time, digest = place.line, start[1], blake2b(digest_size=12)
            asked = answered = ended = False
        blank = not text.strip()
        if blank or ended:
            continue
        typed = text.startswith("#### ")
        ended = typed and answered
        asked, answered = asked or typed, answered or (asked and not typed)
        if not ended:
            digest.update(text.rstrip().encode(errors="replace") + b"\n")
    if line:
        yield line, time, digest.digest() if answered else b""
