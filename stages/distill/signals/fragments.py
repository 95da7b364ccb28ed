"""Edits told by the part they replaced, where that begins or ends within a line.

`timeout=30` to `timeout=60` adds and deletes no line: which line it stands in, the file shows that was
measured later. What is there as it was put in is taken out of that file again, the last edit first, and the
lines by which the two texts differ are those the edits changed. Parts that stand on lines of their own are no
matter of this module: they are compared as they were told (`cursorbench/sessions/lines.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorbench.sessions.fragments import around, is_long, on_its_own, places, unix, whole_text
from cursorbench.sessions.lines import Kept, persistence
from stages.distill.signals.edits import Change

_LOOKED_AT = 50_000_000  # characters of a file, over all parts: a second; the others are compared as told


def kept_in_lines(changes: Sequence[Change], now: str) -> tuple[Kept, list[Change]]:
    """What of the parts within lines is still in `now`, in whole lines; and the changes that are none.

    A part that is not there any more is lost where the one that it replaced stands within a line again. One
    of a few letters that stands in several places is not known: it is neither counted nor among the others.
    """
    if not any(change.part for change in changes):
        return Kept(), list(changes)
    end = text = whole_text(now)
    lost, left, looked_at = Kept(), list[Change](), 0
    for change in reversed(changes):
        before, after = map(unix, (change.before, change.after))
        looked_at += len(text)
        if not change.part or looked_at > _LOOKED_AT:
            left.append(change)
            continue
        found = places(after, text, before)
        own = [at for at in found if on_its_own(after, text, at)]
        if own and (text is end or any(on_its_own(after, end, at) for at in places(after, end, before))):
            left.append(change)
        elif len(found) == 1 or (found and is_long(after)):
            at = (own or found)[0]
            text = text[:at] + before + text[at + len(after) :]
        elif not found:
            back = next((at for at in places(before, end) if not on_its_own(before, end, at)), -1)
            if back < 0:
                left.append(change)
            else:
                lost += _line_changed(end, back, before, after).lost()
    return persistence(text, end, end) + lost, left[::-1]


def _line_changed(text: str, at: int, before: str, after: str) -> Kept:
    """The change of the lines that `before` stands in."""
    head, tail = around(before, text, at)
    changed = head + after + tail
    return persistence(head + before + tail, changed, changed)
