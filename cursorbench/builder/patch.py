"""What a commit changed against its parent: the files, their lines, and patches of some of them.

Read with git's plumbing from a repository that is only read. Not for: which commit makes a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cursorbench.history.repository import Repository

_LINK, _SUBMODULE = "120000", "160000"
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--binary", "--no-renames")


@dataclass(frozen=True)
class File:
    """A file that a commit changed.

    Attributes:
        path: its name afterwards; of a deleted one, before.
        was: its name before; "" for a new one.
        old, new: blobs; "" for none.
        mode: afterwards; of a deleted one, before.
        added, deleted: lines, renames recognised; 0 for data.
    """

    path: str
    was: str
    old: str
    new: str
    mode: str
    added: int
    deleted: int

    @property
    def moved(self) -> bool:
        """Only its name changed."""
        return bool(self.was) and self.was != self.path and self.old == self.new

    @property
    def special(self) -> bool:
        """A link or another repository."""
        return self.mode in (_LINK, _SUBMODULE)

    @property
    def paths(self) -> tuple[str, ...]:
        """All names that a patch of it has."""
        return tuple(dict.fromkeys(name for name in (self.was, self.path) if name))


def files(repository: Repository, base: str, commit: str) -> tuple[File, ...]:
    """The files that differ, by path."""
    tree = ("diff-tree", "-r", "-z", "-M", "--no-ext-diff", "--full-index")
    lines = dict(_numbers(repository.git(*tree, "--numstat", base, commit).split("\0")))
    found = _raw(repository.git(*tree, "--raw", base, commit).split("\0"), lines)
    return tuple(sorted(found, key=lambda file: file.path))


def diff(repository: Repository, base: str, commit: str, paths: Sequence[str]) -> str:
    """The patch of these files, as `git apply --binary` takes it; renames are a deletion and a new file."""
    if not paths:
        return ""
    named = [f":(top,literal){path}" for path in paths]
    return repository.git("diff", *_PLAIN, base, commit, "--", *named)


def _raw(tokens: list[str], lines: dict[str, tuple[int, int]]) -> Iterator[File]:
    at = 0
    while at < len(tokens) and tokens[at].startswith(":"):
        old_mode, mode, old, new, status = tokens[at][1:].split(" ")
        renamed = status[0] in "RC"
        was, path = tokens[at + 1], tokens[at + 2 if renamed else at + 1]
        at += 3 if renamed else 2
        added, deleted = lines.get(path, (0, 0))
        gone, made = status[0] == "D", status[0] in "AC"
        yield File(
            path=path,
            was="" if made else was,
            old="" if made else old,
            new="" if gone else new,
            mode=old_mode if gone else mode,
            added=added,
            deleted=deleted,
        )


def _numbers(tokens: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(path afterwards, (added, deleted)); git says `-` for data."""
    at = 0
    while at < len(tokens) and tokens[at]:
        added, deleted, path = tokens[at].split("\t", 2)
        if not path:  # a rename: both names follow
            path, at = tokens[at + 2], at + 2
        at += 1
        yield path, tuple(int(n) if n.isdigit() else 0 for n in (added, deleted))  # type: ignore[misc]
