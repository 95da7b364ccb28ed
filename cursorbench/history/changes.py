"""A change an agent made and what became of it; the lines that a change is counted by.

Not for: finding commits (`matching`), looking at later texts (`standing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from unicodedata import normalize

import msgspec

from cursorbench.sessions.line_ends import code_lines
from cursorbench.sessions.lines import SIGNIFICANT, Kept, hunks_between, sides_of_diff

HEAD = "head"
HORIZONS: Mapping[str, int] = {"1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000}  # ms

How = Literal["sha", "trailer", "note", "content", ""]
Piece = tuple[tuple[str, ...], tuple[str, ...]]  # lines before, lines after; no trailing blanks


class Change(msgspec.Struct, frozen=True):
    """One change of one file, as a log tells it.

    Attributes:
        key: the caller's name of it; comes back in `Survival.key`.
        path: the file as the log names it, absolute or relative.
        before, after: the texts, of the file or of the part that was replaced. `before` None with an `after`:
            what stood there is not known (the file was written whole), or there was no file.
        diff: a unified diff instead of the two.
        at: when, in ms since the epoch; None where the log does not tell.
        commits: what the log names as taking it: SHAs (short ones too) or a checkpoint's id.
        session: changes of one session supersede one another; "" for none. Give the episode's id here to
            count a rewrite after a complaint as a loss.
        log_session: the session's own id, where `session` is not that: what trailers and notes name it by.
        undone: the log tells that the user undid it. It is lost then, whoever wrote the like of it later:
            what was said outranks what looks alike.
    """

    key: str
    path: str
    before: str | None
    after: str | None
    diff: str | None
    at: int | None
    commits: tuple[str, ...] = ()
    session: str = ""
    undone: bool = False
    log_session: str = ""


class Survival(msgspec.Struct, frozen=True):
    """What became of a change.

    Attributes:
        key: the change's.
        commit: the commit that took it, in full; "" when none did. With `how` "sha" it may be one that the
            followed history no longer has (undone, or lost with a branch); as the log names it then.
        how: what it was recognised by.
        committed_at: its commit time, ms; None when there is none or its object is gone.
        kept: what stands, by horizon: "1h", "24h", "7d" of commit time after the taking commit, "head".
            Absent: the followed history does not reach so far, or nothing is known (`reason`).
        lines: units the change is counted by (lines, or hunks of short lines), without superseded ones.
        reason: why it was not followed, or why all of it is lost; "" when it was followed by its lines.
        path: the file in the repository when it was taken; "" when not known.
        since: where the horizons begin, ms: `committed_at`, or the change's own time without a commit.
        superseded: units that later changes of the session replaced; they count neither way.
    """

    key: str
    commit: str
    how: How
    committed_at: int | None
    kept: dict[str, Kept]
    lines: int
    reason: str
    path: str = ""
    since: int | None = None
    superseded: int = 0


def recognisable(text: str) -> Counter[str]:
    """The lines of a text that can be found again: without indentation, `lines.SIGNIFICANT` characters up."""
    return Counter(line for raw in code_lines(text) if significant(line := raw.strip()))


def significant(line: str) -> bool:
    """Whether a stripped line says something by itself."""
    return len(line) - line.count(" ") - line.count("\t") >= SIGNIFICANT


@dataclass
class Units:
    """What a change is counted by. `added` and `deleted` shrink when later changes supersede.

    Attributes:
        order: the recognisable lines after the change, in order: what a moved block is recognised by.
        hunks: what a change of short lines consists of. They and `pieces` are fewer when it is superseded.
        whole: only the text after is known, so what stood before is the repository's.
    """

    change: Change
    pieces: tuple[Piece, ...] = ()
    added: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    order: tuple[str, ...] = ()
    hunks: tuple[Piece, ...] = ()
    whole: bool = False
    superseded: int = 0

    @cached_property
    def short(self) -> bool:
        """Nothing but short lines, or moved and re-indented ones: compared hunk by hunk."""
        return bool(self.pieces) and not self.added and not self.deleted

    @property
    def lines(self) -> int:
        """Recognisable lines changed."""
        return self.added.total() + self.deleted.total()

    def minus(self, stood: Counter[str]) -> Counter[str]:
        """The added lines; of a file written whole those that did not stand there before."""
        return self.added - stood if self.whole else self.added


def units_of(change: Change) -> Units:
    """What a change is counted by; without pieces when the log has no text of it or nothing differs."""
    units = Units(change, _pieces(change))
    units.whole = change.diff is None and change.before is None and change.after is not None
    for before, after in units.pieces:
        was, new = recognisable("\n".join(before)), recognisable("\n".join(after))
        units.added += new - was
        units.deleted += was - new
        units.order += tuple(line for raw in after if significant(line := raw.strip()))
    moved = units.added & units.deleted  # from one piece of it to another
    units.added, units.deleted = units.added - moved, units.deleted - moved
    if units.short:  # decided before anything is superseded
        units.hunks = tuple(hunk for piece in units.pieces for hunk in hunks_between(*piece))
    return units


def hunks_of(diff: str) -> list[str]:
    """The hunks of a unified diff, each with its header; the whole when there are no headers."""
    hunks: list[list[str]] = []
    left = [0, 0]  # lines that the open hunk still has before and after
    for line in diff.removesuffix("\n").split("\n"):  # nothing else ends a line of a diff
        if left[0] <= 0 and left[1] <= 0 and (counts := _counts(line)):
            hunks.append([line])
            left = counts
        elif hunks and (left[0] > 0 or left[1] > 0 or line.startswith("\\")):
            hunks[-1].append(line)
            left[0] -= not line.startswith(("+", "\\"))
            left[1] -= not line.startswith(("-", "\\"))
    return ["\n".join(hunk) for hunk in hunks] or [diff]


def _counts(line: str) -> list[int] | None:
    """How many lines a hunk header announces before and after."""
    words = line.split(" ")
    if len(words) < 4 or words[0] != "@@" or not words[3].startswith("@@"):
        return None
    sizes = [word[1:].partition(",")[2] or "1" for word in words[1:3]]
    return (
        [int(size) for size in sizes] if all(size.isdecimal() and len(size) <= 9 for size in sizes) else None
    )


def _pieces(change: Change) -> tuple[Piece, ...]:
    if change.before is not None or change.after is not None:
        sides = [(change.before or "", change.after or "")]
    elif change.diff is not None:
        sides = [sides_of_diff(hunk) for hunk in hunks_of(change.diff)]
    else:
        sides = []
    cut = [(bare(before), bare(after)) for before, after in sides]
    return () if _of_a_cell(change.path, cut) else tuple(piece for piece in cut if piece[0] != piece[1])


def _of_a_cell(path: str, pieces: Sequence[Piece]) -> bool:
    """Whether a change of a Jupyter notebook is told by a cell's source: its file has the same as JSON."""
    lines = (line.lstrip() for piece in pieces for side in piece for line in side)
    return path.endswith(".ipynb") and not all(line.startswith(tuple('{}[]"')) for line in lines)


def bare(text: str) -> tuple[str, ...]:
    """The lines that are not blank, without trailing blanks."""
    return tuple(line for raw in code_lines(text) if (line := raw.rstrip()))


def composed(path: str) -> str:
    """A path as it is compared: macOS tells `ü` as two characters where git has one."""
    return path if path.isascii() else normalize("NFC", path)


def forms(path: str) -> tuple[str, ...]:
    """How a path may be spelt, as it is told first."""
    return (path,) if path.isascii() else (path, normalize("NFC", path), normalize("NFD", path))


def nearness(told: str, path: str) -> int:
    """How well a path agrees with what a log, or another commit, calls it: equal parts at the end."""
    agreeing = 0
    parts = (reversed(composed(one).split("/")) for one in (told.replace("\\", "/"), path))
    for one, other in zip(*parts, strict=False):
        if one != other:
            break
        agreeing += 1
    return agreeing
