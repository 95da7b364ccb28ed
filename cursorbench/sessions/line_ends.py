"""Where the lines of code end: for git, editors and parsers at a newline, a carriage return, or both.

Not for: what people read. Python's `splitlines` ends a line at form feeds and other blanks, too, which
parsers pass over: a line written with them would fall into pieces that are too short to be recognised.
"""

from __future__ import annotations


def code_lines(text: str) -> list[str]:
    r"""The lines of a text without their ends; "a\n" is one line, "" none; a byte order mark is in none."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n") if text else []
