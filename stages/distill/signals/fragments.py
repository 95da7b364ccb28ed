"""Edits told by the part they replaced, where that begins or ends within a line.

`timeout=30` to `timeout=60` adds and deletes no line: which line it stands in, the file shows that was
measured later. What is there as it was put in is taken out of that file again, the last edit first, and the
lines by which the two texts differ are those the edits changed. Parts that stand on lines of their own are no
matter of this module: they are compared as they were told (`cursorbench/sessions/lines.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from cursorbench.sessions.lines import SIGNIFICANT, Kept, persistence
from stages.distill.signals.edits import Change

_LOOKED_AT = 50_000_000  # characters of a file, over all parts: a second; the others are compared as told
_PLACES = 100  # of a part that are looked at


def kept_in_lines(changes: Sequence[Change], now: str) -> tuple[Kept, list[Change]]:
    """What of the parts within lines is still in `now`, in whole lines; and the changes that are none.

    A part that is not there any more is lost where the one that it replaced stands within a line again. One
    of a few letters that stands in several places is not known: it is neither counted nor among the others.
    """
    if not any(change.part for change in changes):
        return Kept(), list(changes)
    end = text = _lines(now)
    lost, left, looked_at = Kept(), list[Change](), 0
    for change in reversed(changes):
        before, after = (side.replace("\r\n", "\n") for side in (change.before, change.after))
        looked_at += len(text)
        if not change.part or looked_at > _LOOKED_AT:
            left.append(change)
            continue
        places = _places(after, text, before)
        own = [at for at in places if _on_its_own(after, text, at)]
        if own and (text is end or any(_on_its_own(after, end, at) for at in _places(after, end, before))):
            left.append(change)
        elif len(places) == 1 or (places and _long(after)):
            at = (own or places)[0]
            text = text[:at] + before + text[at + len(after) :]
        elif not places:
            back = next((at for at in _places(before, end) if not _on_its_own(before, end, at)), -1)
            if back < 0:
                left.append(change)
            else:
                lost += _line_changed(end, back, before, after).lost()
    return persistence(text, end, end) + lost, left[::-1]


def _lines(text: str) -> str:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def _places(part: str, text: str, other: str = "") -> list[int]:
    """Where a part stands, and not in the middle of a word nor of `other`, which it may be a piece of."""
    if not part.strip():
        return []
    if part in other:
        text = text.replace(other, "\0" * len(other))
    letters = re.escape(part)  # first, as what a pattern begins with is searched for quickest
    begins = rf"(?<!\w{letters})" if _in_word(part[0]) else ""
    found = re.finditer(letters + begins + (r"\b" if _in_word(part[-1]) else ""), text)
    return [match.start() for match in islice(found, _PLACES)]


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _on_its_own(part: str, text: str, at: int) -> bool:
    """Whether nothing else stands on the lines of a part."""
    first, end = text.rfind("\n", 0, at) + 1, at + len(part)
    rest = "" if part.endswith("\n") else text[end : text.find("\n", end)]
    return not text[first:at].strip() and not rest.strip()


def _long(part: str) -> bool:
    return len("".join(part.split())) >= SIGNIFICANT


def _line_changed(text: str, at: int, before: str, after: str) -> Kept:
    """The change of the lines that `before` stands in."""
    end = at + len(before)
    head = text[text.rfind("\n", 0, at) + 1 : at]
    tail = "" if before.endswith("\n") else text[end : text.find("\n", end)]
    changed = head + after + tail
    return persistence(head + before + tail, changed, changed)
