"""Changes told by a part that begins or ends within a line, as changes of whole lines.

Of `timeout=30` to `timeout=60` no commit has a line. Which line it stands in, the file says as it was
committed before the change, with what the same session changed in it since. Not for: parts on lines of their
own, which are found as they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from cursorbench.history.changes import Change
from cursorbench.sessions.fragments import around, on_its_own, places, unix, whole_text

_FILES = 32  # whose texts are held


def in_whole_lines(
    changes: Iterable[Change], committed: Callable[[str, int], tuple[str, str]]
) -> Iterator[Change]:
    """The changes in their order; one that stands in one place, within a line, is filled up to whole lines.

    Args:
        committed: gives a file (as a log names it) at a time (ms): what names its commit, and its text.
    """
    files: dict[tuple[str, str], tuple[str, str]] = {}  # by session and path: since which commit, the text
    for change in changes:
        if change.diff is not None or not change.before or change.after is None or change.at is None:
            yield change
            continue
        key, (commit, text) = (change.session, change.path), committed(change.path, change.at)
        since, changed = files.pop(key, ("", ""))
        whole = whole_text(changed if since == commit else text)
        before, after = unix(change.before), unix(change.after)
        found = places(before, whole)
        if len(found) != 1:
            yield change
            continue
        (at,) = found
        head, tail = around(before, whole, at)
        own = on_its_own(before, whole, at)
        yield change if own else replace(change, before=head + before + tail, after=head + after + tail)
        files[key] = commit, whole[:at] + after + whole[at + len(before) :]
        if len(files) > _FILES:
            files.pop(next(iter(files)))
