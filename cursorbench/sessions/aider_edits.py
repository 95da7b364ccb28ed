"""The edits in an Aider answer: SEARCH/REPLACE blocks, whole files, unified diffs, patches. For `aider`.

Edits are text in the answer; which of them came into the files is told later by "Applied edit to PATH".
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise

import msgspec

from cursorbench.sessions.calls import changes_of_patch
from cursorbench.sessions.transcript import Fence

SEARCH = re.compile(r"^<{5,9} (?:SEARCH|ORIGINAL)>?\s*$")
_MIDDLE = re.compile(r"^={5,9}\s*$")
REPLACE = re.compile(r"^>{5,9} (?:REPLACE|UPDATED)\s*$")
_PATCH = "*** Begin Patch"
_CLOSE = 0.8  # how near a name is that Aider takes for a file's
_LONGEST, _MOST = 100, 20  # characters of a name, and edits, that are compared so: it takes their square
_TAG = re.compile(r"^<(source|code|pre|codeblock|sourcecode)>")
_CLOSED = re.compile(r"^</(source|code|pre|codeblock|sourcecode)>")
_FAILED = re.compile(r"(?:exactly match|to match) lines in (.+?)\s*$")


class Proposed(msgspec.Struct):
    """An edit the answer proposes. `before` None: the whole file is `after`, unless there is a `diff`."""

    path: str
    line: int
    before: str | None = None
    after: str | None = None
    diff: str | None = None
    done: bool = False


def edits_of(lines: Sequence[tuple[int, str]]) -> list[Proposed]:
    """The edits in an answer's lines (with their numbers); a block that is not complete is none."""
    return list(_edits(lines))


def _edits(lines: Sequence[tuple[int, str]]) -> Iterator[Proposed]:
    name = ""  # the last line that may name the file, and the last file an edit named
    path, at = "", 0
    barren: dict[str, tuple[int, int]] = {}
    ends = [n for n, (_, line) in enumerate(lines) if line.startswith("*** End Patch")]
    tagged = _Tagged(lines)
    while at < len(lines):
        number, line = lines[at]
        if line.startswith(_PATCH) and (close := bisect(ends, at)) < len(ends):
            yield from _of_patch("\n".join(text for _, text in lines[at : ends[close] + 1]), number)
            name, at = "", ends[close] + 1
            continue
        if SEARCH.match(line):
            path, name = _name(name) or path, ""
            block, at = _block(lines, at + 1)
            if block:
                yield Proposed(path, number, block[0], block[1])
            continue
        fence = Fence.opened_by(line)
        if fence and not (at + 1 < len(lines) and SEARCH.match(lines[at + 1][1])):
            end = _end(lines, at + 1, fence, barren)
            if end is None:
                at += 1
                continue
            text = "\n".join(text for _, text in lines[at + 1 : end])
            yield from _fenced(fence, text, _name(name), number)
            name, at = "", end + 1
            continue
        if (close := tagged.end(line, at)) and _name(name):
            text = "\n".join(text for _, text in lines[at + 1 : close])
            yield Proposed(_name(name), number, after=text)
            name, at = "", close
        elif line.strip() and not fence and not _TAG.match(line):
            name = line
        at += 1


class _Tagged:
    """Whole files between tags, which stand in a fence's place where the file has fences itself."""

    def __init__(self, lines: Sequence[tuple[int, str]]) -> None:
        self._closed: defaultdict[str, list[int]] = defaultdict(list)
        for n, (_, line) in enumerate(lines):
            if found := _CLOSED.match(line):
                self._closed[found[1]].append(n)
        self._searches = [n for n, (_, line) in enumerate(lines) if SEARCH.match(line)]

    def end(self, line: str, at: int) -> int:
        """The place of the line that closes this one, 0 where nothing does or a SEARCH is inside."""
        closed = self._closed[tag[1]] if (tag := _TAG.match(line)) else []
        place = bisect(closed, at)
        close = closed[place] if place < len(closed) else 0
        return close if bisect(self._searches, at) == bisect(self._searches, close) else 0


def _end(
    lines: Sequence[tuple[int, str]], at: int, fence: Fence, barren: dict[str, tuple[int, int]]
) -> int | None:
    """The line that closes the block, None when a SEARCH comes first or nothing closes it.

    `barren` remembers, by mark, up to where no block of a length or more is closed: no line is looked at for
    every block before it.
    """
    length, until = barren.get(fence.mark, (0, 0))
    if at < until and fence.length >= length:
        return None
    for n in range(at, len(lines)):
        if fence.closed_by(lines[n][1]):
            return n
        if SEARCH.match(lines[n][1]):
            barren[fence.mark] = (fence.length, n)
            return None
    barren[fence.mark] = (fence.length, len(lines))
    return None


def _fenced(fence: Fence, text: str, path: str, number: int) -> Iterator[Proposed]:
    if text.startswith(_PATCH):
        yield from _of_patch(text, number)
    elif fence.info == "diff":
        yield from _of_files(text.split("\n"), number)
    elif path:
        yield Proposed(path, number, after=text)


def _of_patch(text: str, number: int) -> Iterator[Proposed]:
    for one in changes_of_patch(text):
        yield Proposed(one.path, number, one.before, one.after, one.diff)


def _of_files(lines: list[str], number: int) -> Iterator[Proposed]:
    """The files of a block of diffs, each with its part; their names are in folders of git's, or are not."""
    heads = [n for n, pair in enumerate(pairwise(lines)) if pair[0][:4] == "--- " and pair[1][:4] == "+++ "]
    for head, end in pairwise([*heads, len(lines)]):
        old, path = (line[4:].strip() for line in lines[head : head + 2])
        if path.startswith("b/") and (old.startswith("a/") or old == "/dev/null"):
            path = path[2:]
        yield Proposed(path, number + 1 + head, diff="\n".join(lines[head:end]))


def _block(lines: Sequence[tuple[int, str]], at: int) -> tuple[tuple[str, str] | None, int]:
    """(before, after) of the block whose text begins at `at`, and where reading goes on."""
    sides: tuple[list[str], list[str]] = ([], [])
    side = 0
    for n in range(at, len(lines)):
        line = lines[n][1]
        if SEARCH.match(line):
            return None, n
        if REPLACE.match(line):
            return (("\n".join(sides[0]), "\n".join(sides[1])) if side else None), n + 1
        if side == 0 and _MIDDLE.match(line):
            side = 1
        else:
            sides[side].append(line)
    return None, len(lines)


def _name(line: str) -> str:
    """The file a line names, as the edit formats have it: alone, maybe in marks. "" when it is a sentence."""
    name = line.strip().strip("`*:#").strip()
    return "" if len(name) > 400 or re.search(r"\s{2,}|[<>|?]|[a-z] [a-z]", name) or not name else name


def failing(messages: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(path, lines searched for) of each block that an error message says did not match."""
    found: list[tuple[str, list[str]]] = []
    reading = False
    for line in messages:
        if match := _FAILED.search(line):
            found.append((match[1], []))
        elif found and SEARCH.match(line):
            reading = True
        elif reading and (_MIDDLE.match(line) or REPLACE.match(line)):
            reading = False
        elif reading:
            found[-1][1].append(line.strip())
    return found


def of_file(edits: Sequence[Proposed], path: str) -> list[Proposed]:
    """The edits of a file as Aider names it; they have its name then.

    Aider corrects what an answer calls a file (`find_filename` of its `editblock_coder.py`): the name alone
    will do, or one that is nearly right, which on Windows is every path, as its own have backslashes.
    """
    name = spelt(path)
    is_it: tuple[Callable[[str], object], ...] = (
        lambda told: told == path,
        lambda told: spelt(told) == name,
        lambda told: told == name.rpartition("/")[2],
    )
    mine = next((found for test in is_it if (found := [one for one in edits if test(one.path)])), [])
    if not mine and (nearest := _nearest([one.path for one in edits], path)):
        mine = [one for one in edits if one.path == nearest]
    for edit in mine:
        edit.path = edit.path if spelt(edit.path) == name else path
    return mine


def _nearest(told: Sequence[str], path: str) -> str | None:
    names = [name for name in dict.fromkeys(told[:_MOST]) if len(name) <= _LONGEST]
    return next(iter(get_close_matches(path, names, 1, _CLOSE) if len(path) <= _LONGEST else ()), None)


def spelt(path: str) -> str:
    """A path with slashes, as answers have them."""
    return path.replace("\\", "/")


def same(edit: Proposed, searched: Sequence[str]) -> bool:
    """Whether the edit is the one that did not match; messages lose the blanks around lines."""
    if edit.before is None:
        return False
    lines = [line.strip() for line in edit.before.split("\n")]
    return [line for line in lines if line] == [line for line in searched if line]
