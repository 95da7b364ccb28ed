"""Which sessions a Markdown formatter went over that cuts blanks at the ends of paragraphs. For `aider`.

Such a formatter leaves the two blanks that end Aider's lines within a paragraph, where they break the line,
and cuts them at its end and behind what was typed, which is a heading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cursorbench.sessions.aider_copies import START
from cursorbench.sessions.reading import text_lines


def cut_sessions(path: Path) -> dict[int, bool]:
    """By the line that such a session begins with: whether Aider counts the tokens behind its answers.

    Where it does, nothing that is typed stands right behind an answer.
    """
    return {begin: counts for begin, typed, cut, counts in _sessions(path) if begin and typed and cut}


def _sessions(path: Path) -> Iterator[tuple[int, bool, bool, bool]]:
    """Each session's line, whether anything was typed in it, its blanks were cut, tokens are counted.

    The blanks were cut where neither Aider's first paragraph nor any typed line ends with two of them.
    """
    begin, typed, cut, counts = 0, False, False, False
    before, first = "", True
    for place, line in text_lines(path):
        if not before.strip() and START.match(line):
            yield begin, typed, cut, counts
            begin, typed, cut, counts, first = place.line, False, False, False, True
        elif first and before.startswith("> ") and not line.strip():
            first, cut = False, not before.endswith("  ")
        elif line.startswith("#### ") and not before.strip():
            typed, cut = True, cut and not line.endswith("  ")
        counts = counts or line.startswith("> Tokens: ")
        before = line
    yield begin, typed, cut, counts
