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
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any

from cursorbench.sessions.blocks import alike_ends, joined, occurrences
from cursorbench.sessions.line_ends import code_lines

SIGNIFICANT = 8  # fewer non-blank characters than this: the line is too common to be recognised
_DIFF_LIMIT = 4_000  # beyond so many differing lines a diff costs minutes; the difference is one hunk then,
_DIFF_STEPS = 5_000_000  # and where lines that are alike take so many pairs to be looked at: half a second
_N = r"\d{1,9}"  # no file has more lines, and Python reads no number of thousands of digits
_HUNK_HEADER = re.compile(rf"^@@ -{_N}(?:,({_N}))? \+{_N}(?:,({_N}))? @@", re.MULTILINE)

Block = tuple[str, ...]
_Counts = Mapping[str, int]
_Taken = tuple[dict[str, int], dict[str, int]]  # lines that were credited: as added, as come back


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
        return Kept(*map(add, vars(self).values(), vars(other).values()))

    def lost(self) -> Kept:
        """The same change with nothing of it left: what an explicit revert makes of it."""
        return Kept(added=self.added, deleted=self.deleted, hunks=self.hunks)


def persistence(before: str, after: str, now: str) -> Kept:
    """What of the change `before` -> `after` is still there in `now`. All three are whole file texts."""
    was, new, is_ = (_significant(lines) for lines in _different(before, after, now))
    return _by_hunk(before, after, _Now(now)) if was == new else _by_line(was, new, is_)


def persistence_of_all(changes: Sequence[tuple[str, str]], now: str) -> Kept:
    """What of several changes of one file is still in `now`, whose lines are each one change's: put in ten
    times by ten edits, with one of them left, a line is kept once."""
    if len(changes) == 1:
        return persistence(*changes[0], now)
    total, left, lines = Kept(), _significant(code_lines(now)), _Now(now)
    taken: _Taken = ({}, {})
    for before, after in changes:
        was, new = _significant(code_lines(before)), _significant(code_lines(after))
        total += _by_hunk(before, after, lines) if was == new else _by_line(was, new, left, taken)
    return total


def _by_line(was: _Counts, new: _Counts, now: _Counts, taken: _Taken | None = None) -> Kept:
    """`taken` is counted on: what earlier changes of the same file have been credited with."""
    of_added, of_deleted = taken or ({}, {})
    added, found = _more(new, was, now, of_added)
    deleted, back = _more(was, new, now, of_deleted)
    return Kept(added=added, added_kept=found, deleted=deleted, deleted_kept=deleted - back)


def _more(lines: _Counts, others: _Counts, now: _Counts, taken: dict[str, int]) -> tuple[int, int]:
    """How many lines there are beyond `others`, and how many of these are there `now` and not `taken` yet.

    Lines that `others` have may be those taken: an edit's context is often what another edit put in.
    """
    more = found = 0
    for line, n in lines.items():
        before = others.get(line, 0)
        if n > before:
            gone = taken.get(line, 0)
            here = min(n - before, max(0, now.get(line, 0) - max(before, gone)))
            more, found = more + n - before, found + here
            taken[line] = gone + here
    return more, found


def changed(before: str, after: str) -> bool:
    """Whether two texts differ in more than blank lines, trailing blanks and what nobody sees."""
    return before != after and _lines(before) != _lines(after)


def written(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that a change added and lines it deleted, each in order; blank ones are none.

    Lines are compared as multisets, trailing blanks apart, so a line that moved is neither.
    """
    old, new = ([line.rstrip() for line in side] for side in _different(before, after))
    return _beyond(new, old), _beyond(old, new)


def _beyond(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that there are more of than in `others`: the first ones, in order."""
    wanted: dict[str, int] = {}
    for line in lines:
        wanted[line] = wanted.get(line, 0) + 1
    for line in others:
        if line in wanted:
            wanted[line] -= 1
    found = []
    for line in lines:
        if line and wanted[line] > 0:
            wanted[line] -= 1
            found.append(line)
    return found


def sides_of_diff(diff: str) -> tuple[str, str]:
    """The text before and after of a unified diff's hunks, for clients that send a diff and no files.

    Only the hunks are known: a line that stands elsewhere in the file, too, is miscounted. Without numbers
    behind `@@` it is one hunk's body, behind the names of its file. Only a newline ends a line of a diff.
    """
    lines = [line.removesuffix("\r") for line in diff.removesuffix("\n").split("\n")]
    named = [line[:4] for line in lines[:2]] == ["--- ", "+++ "]
    body = list(_diff_body(lines)) if _HUNK_HEADER.search(diff) else lines[2 * named :]
    before, after = ([one[1:] for one in body if not one.startswith((sign, "\\"))] for sign in "+-")
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
    return _different_lines(*(code_lines(text) for text in texts))


def _different_lines(*split: Sequence[str]) -> list[list[str]]:
    start, end = alike_ends(*split)
    return [list(lines[start : len(lines) - end]) for lines in split]


def _significant(lines: Sequence[str]) -> dict[str, int]:
    """Count the lines that can be recognised again, without their indentation (a Counter takes longer)."""
    found: dict[str, int] = {}
    for raw in lines:
        line = raw.strip()
        if len(line) - line.count(" ") - line.count("\t") >= SIGNIFICANT:
            found[line] = found.get(line, 0) + 1
    return found


def _lines(text: str) -> list[str]:
    """The lines that are not blank, without trailing blanks, indentation kept."""
    return [line for line in (raw.rstrip() for raw in code_lines(text)) if line]


class _Now:
    """A text that changes of short lines are looked for in, however many they are."""

    def __init__(self, text: str) -> None:
        self.lines = _lines(text)
        self.joined = joined(self.lines)


def _by_hunk(before: str, after: str, now: _Now) -> Kept:
    old_lines, new_lines = _lines(before), _lines(after)
    hunks = list(hunks_between(old_lines, new_lines))
    if now.lines == old_lines:
        return Kept(hunks=len(hunks))
    texts = joined(new_lines), now.joined
    kept = {hunk: _hunk_kept(*hunk, *texts) for hunk in set(hunks)}
    return Kept(hunks=len(hunks), hunks_kept=sum(kept[hunk] for hunk in hunks))


def _hunk_kept(old: Block, new: Block, after: str, now: str) -> bool:
    """The new lines stand in `now` as one block as often as the change left them, the old ones no more."""
    return occurrences(new, now) >= occurrences(new, after) and occurrences(old, now) <= occurrences(
        old, after
    )


def hunks_between(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[Block, Block]]:
    """(removed lines, inserted lines) of every differing block, in order."""
    old, new = _different_lines(before, after)
    if not old and not new:
        return
    changes: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(old), 0, len(new))]
    if len(old) + len(new) <= _DIFF_LIMIT:
        with suppress(_TooAlikeError):
            changes = _Diff(old, new).get_opcodes()
    for tag, i, j, k, m in changes:
        if tag != "equal":
            yield tuple(old[i:j]), tuple(new[k:m])


class _TooAlikeError(Exception):
    """A diff would take too long."""


class _Diff(difflib.SequenceMatcher[str]):
    """A diff in `_DIFF_STEPS` at most; raises _TooAlikeError.

    Each longest match looks at all pairs of equal lines, and there may be as many matches as lines: with
    lines that are alike, all of it grows with the cube of their number.
    """

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new, autojunk=False)
        times = Counter(new)
        self._pairs = [0, *accumulate(times[line] for line in old)]  # of the lines before each
        self._left = _DIFF_STEPS

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, *b: Any) -> difflib.Match:
        """difflib's call."""
        self._left -= self._pairs[-1 if ahi is None else ahi] - self._pairs[alo]
        if self._left < 0:
            raise _TooAlikeError
        return super().find_longest_match(alo, ahi, *b)
