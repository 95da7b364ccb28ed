"""Edit persistence: how much of a change is still there later, line by line.

For: the signal `edit_persistence` and any report that compares a proposed change with later code.
Not for: finding out which commit took which line (attribution), nor for judging whether code is right.

Definition (Keep Rate, as in the design notes): of the change from `before` to `after`, the part still
in `now`. An added line counts as kept when it is found again anywhere (moved and re-indented code is
found), a deleted line when it is still absent. Lines under 8 significant characters (`}`, `else:`,
`return x`) say nothing by themselves and do not count; a change that consists of nothing else, or only
moves or re-indents lines, is compared hunk by hunk instead, each hunk kept whole or lost whole.

Lines are compared as multisets, so a line that occurs twice is kept twice or once:

    added_l   = max(0, after_l - before_l)     kept_l = clip(now_l - before_l, 0, added_l)
    deleted_l = max(0, before_l - after_l)     kept_l = clip(before_l - now_l, 0, deleted_l)
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SIGNIFICANT = 8  # fewer non-blank characters than this: the line is too common to be recognised
_DIFF_LIMIT = 4_000  # beyond so many differing lines a diff costs minutes; the difference is one hunk then
_HUNK_HEADER = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Kept:
    """What a change consisted of and what of it is left. Units: lines, or hunks of short lines."""

    added: int = 0
    added_kept: int = 0
    deleted: int = 0
    deleted_kept: int = 0
    hunks: int = 0
    hunks_kept: int = 0

    @property
    def units(self) -> int:
        """How many lines (or hunks) the change had; 0 when nothing was changed."""
        return self.added + self.deleted + self.hunks

    @property
    def kept(self) -> int:
        """How many of them are still as the change left them."""
        return self.added_kept + self.deleted_kept + self.hunks_kept

    @property
    def rate(self) -> float | None:
        """`kept / units` in [0, 1]; None when there was no change to keep."""
        return self.kept / self.units if self.units else None

    def __add__(self, other: Kept) -> Kept:
        return Kept(
            self.added + other.added,
            self.added_kept + other.added_kept,
            self.deleted + other.deleted,
            self.deleted_kept + other.deleted_kept,
            self.hunks + other.hunks,
            self.hunks_kept + other.hunks_kept,
        )

    def lost(self) -> Kept:
        """The same change with nothing of it left: what an explicit revert makes of it."""
        return Kept(added=self.added, deleted=self.deleted, hunks=self.hunks)


def persistence(before: str, after: str, now: str) -> Kept:
    """What of the change `before` -> `after` is still there in `now`. All three are whole file texts."""
    was, new, is_ = (_significant(lines) for lines in _different(before, after, now))
    if was == new:
        return _by_hunk(_lines(before), _lines(after), _lines(now))
    added, found = _more(new, was, is_)
    deleted, back = _more(was, new, is_)
    return Kept(added=added, added_kept=found, deleted=deleted, deleted_kept=deleted - back)


def _more(lines: Mapping[str, int], others: Mapping[str, int], now: Mapping[str, int]) -> tuple[int, int]:
    """How many lines there are beyond `others`, and how many of these are there `now`."""
    more = found = 0
    for line, n in lines.items():
        before = others.get(line, 0)
        if n > before:
            more += n - before
            found += min(n - before, max(0, now.get(line, 0) - before))
    return more, found


def changed(before: str, after: str) -> bool:
    """Whether two texts differ in more than blank lines and trailing blanks."""
    if before == after:
        return False
    return before.split() != after.split() or _lines(before) != _lines(after)  # the words first: quicker


def written(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that a change added and lines it deleted, each in order; blank ones are none.

    Lines are compared as multisets, trailing blanks apart, so a line that moved is neither.
    """
    old, new = ([line.rstrip() for line in side] for side in _different(before, after))
    was, now = Counter(old), Counter(new)
    added, deleted = now - was, was - now
    return _of(new, added), _of(old, deleted)


def _of(lines: Sequence[str], wanted: Counter[str]) -> list[str]:
    """So many of these lines, the first ones, in order."""
    found = []
    for line in lines:
        if line and wanted[line] > 0:
            wanted[line] -= 1
            found.append(line)
    return found


def sides_of_diff(diff: str) -> tuple[str, str]:
    """The text before and after of a unified diff's hunks, for clients that send a diff and no files.

    Only the hunks are known, so a line that also stands elsewhere in the file is miscounted. A diff
    without `@@` headers is read as the body of one hunk. Only a newline ends a line of a diff: one of code
    may have a form feed or another of Python's line ends in it, and the diff counts it as one.
    """
    lines = [line.removesuffix("\r") for line in diff.removesuffix("\n").split("\n")]
    body = list(_diff_body(lines)) if _HUNK_HEADER.search(diff) else lines
    before = [line[1:] for line in body if not line.startswith(("+", "\\"))]
    after = [line[1:] for line in body if not line.startswith(("-", "\\"))]
    return "\n".join(before), "\n".join(after)


def _diff_body(lines: Sequence[str]) -> Iterator[str]:
    """The lines inside hunks; counted from the hunk header, as `--- x` may be a deleted line too."""
    old = new = 0
    for line in lines:
        if old <= 0 and new <= 0:
            if header := _HUNK_HEADER.match(line):
                old, new = (int(header[1] or 1), int(header[2] or 1))
            continue
        old -= not line.startswith(("+", "\\"))
        new -= not line.startswith(("-", "\\"))
        yield line


def _different(*texts: str) -> list[list[str]]:
    """The lines of each text without those that all begin or end with: what is equal counts for nothing."""
    return _different_lines(*(text.splitlines() for text in texts))


def _different_lines(*split: list[str]) -> list[list[str]]:
    most = min(map(len, split))
    start = _alike(most, [lines[:most] for lines in split])
    most -= start
    end = _alike(most, [lines[len(lines) - most :][::-1] for lines in split])
    return [lines[start : len(lines) - end] for lines in split]


def _alike(most: int, split: Sequence[list[str]]) -> int:
    """With how many lines all begin, at most `most`; by bisection, as comparing slices is quick."""
    first, *others = split
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if all(lines[low:middle] == first[low:middle] for lines in others):
            low = middle
        else:
            high = middle - 1
    return low


def _significant(lines: Sequence[str]) -> Counter[str]:
    """Count the lines that can be recognised again, without their indentation."""
    stripped = [line.strip() for line in lines]
    return Counter(
        [line for line in stripped if len(line) - line.count(" ") - line.count("\t") >= SIGNIFICANT]
    )


def _lines(text: str) -> list[str]:
    """The lines that are not blank, without trailing blanks, indentation kept."""
    return [line for line in (raw.rstrip() for raw in text.splitlines()) if line]


def _by_hunk(before: list[str], after: list[str], now: list[str]) -> Kept:
    hunks = list(_hunks(before, after))
    if now == before:
        return Kept(hunks=len(hunks))
    kept = sum(_hunk_kept(old, new, after, now) for old, new in hunks)
    return Kept(hunks=len(hunks), hunks_kept=kept)


def _hunk_kept(old: list[str], new: list[str], after: list[str], now: list[str]) -> bool:
    """The new lines stand in `now` as one block as often as the change left them, the old ones no more."""
    return _occurrences(new, now) >= _occurrences(new, after) and _occurrences(old, now) <= _occurrences(
        old, after
    )


def _hunks(before: list[str], after: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """(removed lines, inserted lines) of every differing block, in order."""
    old, new = _different_lines(before, after)
    if not old and not new:
        return
    if len(old) + len(new) > _DIFF_LIMIT:
        yield old, new
        return
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield old[i:j], new[k:m]


def _occurrences(block: Sequence[str], lines: Sequence[str]) -> int:
    """How often `block` stands in `lines` as consecutive lines; 0 for an empty block."""
    n = len(block)
    if not n:
        return 0
    return sum(list(lines[i : i + n]) == list(block) for i in range(len(lines) - n + 1))
