"""Excerpts of what was said: masked, code folded, shortened in the middle. For people and annotators.

Masking comes first: a cut through a key would hide it from the patterns. Not for: prompts or tokens.
"""

from __future__ import annotations

import re

from cursorbench.redaction import mask as redacted
from cursorbench.redaction import redact

MESSAGE_CHARACTERS = 700
REQUEST_CHARACTERS = 500
ANSWER_CHARACTERS = 600
READ_CHARACTERS = 200_000  # of a longer text only the head and the tail of this size are looked at
_FOLD_LINES = 6  # a code block of more lines is folded

_ADDRESS = re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_HOME = re.compile(r"(/(?:Users|home)/)(?!\[redacted)[\w.-]+")  # also in the middle of a pasted line
_FENCE = re.compile(
    r"^( {0,3})(`{3,}|~{3,})([^\n`]*)\n(.*?)(?:^ {0,3}\2[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")


def mask(text: str) -> str:
    """Redacted text, network addresses masked too."""
    if len(text) > READ_CHARACTERS:
        text = text[: READ_CHARACTERS // 2] + "\n" + text[-READ_CHARACTERS // 2 :]
    text = _ADDRESS.sub("<address>", redact(text).text)
    return _HOME.sub(rf"\1{redacted('home_path')}", text)


def fold(text: str) -> str:
    """Code blocks of many lines replaced by their number of lines; blank lines in a row become one."""

    def folded(found: re.Match[str]) -> str:
        lines = found[4].rstrip("\n").count("\n") + 1
        if lines <= _FOLD_LINES:
            return found[0]
        info = found[3].strip()
        return f"[code block{f' {info}' if info else ''}, {lines} lines]"

    return _BLANK.sub("\n\n", _FENCE.sub(folded, text))


def shorten(text: str, limit: int) -> str:
    """About `limit` characters: the first two thirds and the last third, what is between as a number."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    return f"{text[:head].rstrip()}\n[... {len(text) - head - tail} characters ...]\n{text[-tail:].lstrip()}"


def message(text: str) -> str:
    """A person's message. Its code stays, as pasted output is what is judged."""
    return shorten(_BLANK.sub("\n\n", mask(text)), MESSAGE_CHARACTERS)


def request(text: str) -> str:
    """The request before the answer."""
    return shorten(fold(mask(text)), REQUEST_CHARACTERS)


def answer_end(parts: list[str]) -> str:
    """The end of an answer that was told in parts."""
    whole, size = [], 0
    for part in reversed(parts):
        whole.append(part)
        size += len(part)
        if size > READ_CHARACTERS:
            break
    text = fold(mask("\n".join(reversed(whole)))).strip()
    if len(text) <= ANSWER_CHARACTERS:
        return text
    return f"[...] {text[-ANSWER_CHARACTERS:].lstrip()}"
