"""Private keys: blocks from BEGIN to END, cut off at either side, and as source code or a viewer shows them.

A viewer puts a line's number before it, source code quotes, a diff signs; such things between the lines
of a key belong to it. Time is linear: what is read for one END ends at the END before it.
Not for: public keys and certificates, which are no secret; a piece with neither BEGIN nor END.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from cursorbench.redaction.spans import Span

_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]:"
)
_END = re.compile(
    r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: ?[0-9a-f]{40,64}"
)
_BODY = re.compile(r"(?>(?:[A-Za-z0-9+/=\s:,.-]|\\+[nrt])*)")
_JOINT = r"(?:\\++[nrt]|[^A-Za-z0-9]|\d{1,6}+(?![A-Za-z0-9+/=]))"  # of what stands between two lines
_GAP, _ANY_GAP = rf"(?>{_JOINT}{{1,40}})", rf"(?>{_JOINT}{{0,40}})"
_LINE = r"[A-Za-z0-9+/=]{30,}+"
_HEADER = rf"(?:{_ANY_GAP}(?:Proc-Type|DEK-Info|Version|Comment|Charset): ?[^\n\"'\\]{{0,100}}+)"
_LINES = re.compile(
    rf"(?>{_HEADER}{{0,4}}){_ANY_GAP}(?=[A-Za-z+/]{{0,64}}[0-9])(?=[a-z0-9+/]{{0,64}}[A-Z]){_LINE}"
    rf"(?>(?:{_GAP}{_LINE})*)"
    r"(?>(?:"  # the last line: short, or cut off where the text ends
    rf"{_GAP}(?=[A-Za-z+/]{{0,29}}[0-9=])[A-Za-z0-9+/=]{{1,29}}+"
    rf"|(?=[^A-Za-z0-9\n\\]{{0,20}}+(?:\n|\\++n)){_GAP}[A-Za-z]{{1,29}}+\Z"
    r")?)"
)
_RUN = re.compile(_LINE)
_BETWEEN = re.compile(rf"{_GAP}\Z")
_LAST = re.compile(rf"(?>(?:{_GAP}[A-Za-z0-9][A-Za-z0-9+/=]{{0,63}}+){{0,2}}){_GAP}\Z")
_RANDOM = re.compile(r"(?=[A-Za-z+/]*+[0-9])(?=[a-z0-9+/]*+[A-Z])(?=[A-Z0-9+/]*+[a-z])")
_RAGGED = re.compile(rf"[A-Za-z0-9+/=]{{1,29}}+{_GAP}\Z")
_KEY_CHARACTERS = re.compile(r"[A-Za-z0-9+/=]")
_FAR = 20_000  # an END further away belongs to something else
_LEAST_BODY = 32  # fewer characters than that are no key: the line is only spoken of


def private_keys(text: str) -> Iterator[Span]:
    """Blocks, with an END or without, with a BEGIN or without. Escaped newlines count as such."""
    if "PRIVATE KEY" not in text and "PuTTY-User-Key-File" not in text and "Private-MAC" not in text:
        return
    ends = list(_END.finditer(text))
    after, closed = 0, [end.end() for end in ends]
    for match in _BEGIN.finditer(text):
        if match.start() < after:
            continue
        at = bisect_left(closed, match.end())
        close = closed[at] if at < len(closed) and closed[at] - match.end() <= _FAR else None
        after = _cut_off(text, match.end()) if close is None else close
        if len(_KEY_CHARACTERS.findall(text[match.end() : after])) >= _LEAST_BODY:
            yield Span(match.start(), after, "private_key", match.start())
    before = 0
    for end in ends:
        start = _first_line(text, max(before, end.start() - _FAR), end.start())
        before = end.end()
        if start < end.start():
            yield Span(start, end.end(), "private_key", start)


def _cut_off(text: str, start: int) -> int:
    """Where a key without an END ends: as far as there is base64."""
    found = (pattern.match(text, start) for pattern in (_BODY, _LINES))
    return max(start, *(match.end() for match in found if match))


def _first_line(text: str, start: int, end: int) -> int:
    """Where the lines of base64 before an END begin; `end` where there are none.

    Of a text that begins within a line of the key, what is left of that line too.
    """
    first, check = end, _LAST
    for run in reversed(list(_RUN.finditer(text, start, end))):
        if first - run.end() > 200 or not check.match(text, run.end(), first):
            break
        if first == end and not _RANDOM.match(run[0]):
            break  # a path, a long name
        first, check = run.start(), _BETWEEN
    if first < end and _RAGGED.match(text, 0, first):
        return 0
    escaped = first < end and text[first] in "nrt" and text[first - 1 : first] == "\\"
    return first + escaped
