"""A model's diff, file by file, as it reads; for flags and sizes.

Nothing is decided by it that a clever diff could dodge: what a diff really did is seen in the tree that it
was applied to (`restoring.py`). Not here: applying it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

SYMLINK = "120000"
_PAIRS, _LINES = (
    900,
    100_000,
)  # of files deleted and made that are held against each other; of different lines


@dataclass
class FileChange:
    """One file's part of a diff. `added` and `deleted` are whole lines without their sign.

    `old` is where a renamed file stood, else "".
    """

    path: str
    old: str = ""
    added: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    created: bool = False
    removed: bool = False
    symlink: bool = False
    binary: bool = False


def files(patch: str) -> list[FileChange]:
    """The files of a git patch, in its order."""
    found: list[FileChange] = []
    left = [0, 0]  # lines that the open hunk still has before and after
    for line in patch.split("\n"):
        if left[0] > 0 or left[1] > 0:
            _body(found[-1], line, left)
        elif line.startswith("diff --git "):
            found.append(FileChange(_after(line)))
        elif found:
            _header(found[-1], line, left)
    return found


def size(changes: Sequence[FileChange]) -> int:
    """Lines added plus lines deleted; of files that moved those that differ, as git counts a rename."""
    whole = sum(len(one.added) + len(one.deleted) for one in changes)
    by_path = {one.path: one for one in changes}
    moves = ((by_path[old], by_path[new]) for old, new in moved(changes).items())
    return whole - 2 * sum(_alike(Counter(gone.deleted), Counter(made.added)) for gone, made in moves)


def moved(changes: Sequence[FileChange]) -> dict[str, str]:
    """New path by old of the files that a patch without renames deletes in one place and makes in another.

    As git has it by default, half of the larger one's lines are the other's. Of very many files, or lines,
    none are looked for: a model chooses how many there are.
    """
    gone = {one.path: Counter(one.deleted) for one in changes if one.removed and one.deleted}
    made = {one.path: Counter(one.added) for one in changes if one.created and one.added}
    if len(gone) * len(made) > _PAIRS or sum(map(len, (*gone.values(), *made.values()))) > _LINES:
        return {}
    pairs = ((_alike(gone[old], made[new]), old, new) for old in gone for new in made)
    near = [(-n, old, new) for n, old, new in pairs if 2 * n >= max(gone[old].total(), made[new].total())]
    found: dict[str, str] = {}
    for _, old, new in sorted(near):
        if old not in found and new not in found.values():
            found[old] = new
    return found


def _alike(gone: Counter[str], made: Counter[str]) -> int:
    return (gone & made).total()


def _body(change: FileChange, line: str, left: list[int]) -> None:
    if line.startswith("\\"):
        return
    if line.startswith("+"):
        change.added.append(line[1:])
    elif line.startswith("-"):
        change.deleted.append(line[1:])
    left[0] -= not line.startswith("+")
    left[1] -= not line.startswith("-")


def _header(change: FileChange, line: str, left: list[int]) -> None:
    if line.startswith("@@ "):
        words = line.split(" ")
        sizes = [word[1:].partition(",")[2] or "1" for word in words[1:3]]
        if len(sizes) == 2 and all(size.isdecimal() for size in sizes):
            left[:] = [int(size) for size in sizes]
    elif line.startswith(("new file mode", "old mode", "new mode")):
        change.created |= line.startswith("new file")
        change.symlink |= line.endswith(SYMLINK)
    elif line.startswith("deleted file mode"):
        change.removed = True
    elif line.startswith("rename to "):
        change.path = unquoted(line.removeprefix("rename to "))
    elif line.startswith("rename from "):
        change.old = unquoted(line.removeprefix("rename from "))
    elif line.startswith("+++ ") and line != "+++ /dev/null":
        change.path = unquoted(line[4:]).removeprefix("b/")
    elif line.startswith("--- ") and line != "--- /dev/null" and change.removed:
        change.path = unquoted(line[4:]).removeprefix("a/")
    elif line.startswith("GIT binary patch"):
        change.binary = True


def _after(line: str) -> str:
    """The new path of a `diff --git` line; right when both are equal, which is when nothing else says it."""
    paths = line.removeprefix("diff --git ")
    if paths.startswith('"'):
        return unquoted(paths[paths.rfind(' "') + 1 :]).removeprefix("b/")
    half = len(paths) // 2
    return paths[half + 1 :].removeprefix("b/")


def unquoted(path: str, errors: str = "replace") -> str:
    """A path as git writes it: in quotes with octal escapes where it has odd bytes, maybe a tab behind.

    `errors` is for bytes that are no UTF-8, as of `bytes.decode`.
    """
    path = path.rstrip("\t")
    if not (path.startswith('"') and path.endswith('"') and len(path) > 1):
        return path
    try:
        raw = path[1:-1].encode("latin-1", "replace").decode("unicode_escape")
        return raw.encode("latin-1", "replace").decode("utf-8", errors)
    except UnicodeDecodeError:
        return path[1:-1]
