"""What a repository got after a date: the lines that a model trained on older code cannot have seen.

The history is split by commit date at its main line: what stands at the tip and did not stand at the last
commit before the date. Of a file that was there before only its new lines count, the rest is their context;
a file that was only moved has none. Not here: what a model makes of it (`perplexity.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.history.repository import Repository
from cursorbench.history.texts import LFS

LARGEST = 200_000  # bytes; longer files are generated, or data
_GENERATED = re.compile(r"(^|/)(package-lock\.json|[^/]*\.(lock|lockb|map|svg|csv|snap)|[^/]*\.min\.[^/]+)$")
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_FIRST = date(1970, 1, 2)  # git knows no day before the one before it
_FILES = ("100644", "100755")


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a file. `new` when they came after the date."""

    text: str
    new: bool


@dataclass(frozen=True)
class Document:
    """A file as it stands at the tip, cut where old and new lines meet."""

    path: str
    pieces: tuple[Piece, ...]

    @property
    def new_bytes(self) -> int:
        """UTF-8 bytes of the new lines."""
        return sum(len(piece.text.encode()) for piece in self.pieces if piece.new)


def tip(path: Path, revision: str = "HEAD") -> str:
    """The commit that a suite is made at.

    Raises:
        InputMissingError, UsageError: as `Repository`.
    """
    with Repository(path) as repository:
        return repository.commit(revision)


def documents(path: Path, since: date, at: str, limit: int) -> list[Document]:
    """Files of `at` with new lines, in the order of their paths.

    Args:
        since: commits of this day (UTC) and later are new.
        limit: at most so many, drawn by a hash of their paths.

    Raises:
        InputMissingError: (exit 5) nothing is new.
        IntegrityError: (exit 12) git cannot read what it needs, as in a partial clone.
    """
    with Repository(path) as repository, _readable(path):
        # git takes a commit of the very second that is named for one before it
        last = f"--before={max(since, _FIRST) - timedelta(days=1)}T23:59:59Z"
        before = repository.git("rev-list", "-1", "--first-parent", last, at).strip()
        if not before and repository.shallow:
            raise InputMissingError(
                f"{path} is a shallow clone that does not reach back to {since}", hint="git fetch --unshallow"
            )
        empty = repository.git("hash-object", "-t", "tree", "/dev/null").strip()
        changed = _changed(repository, before or empty, at)
        changed.sort(key=lambda one: hashlib.sha256(one[0].encode("utf-8", "surrogateescape")).digest())
        found: list[Document] = []
        for name, old, new in changed:
            document = _document(repository, name, old, new) if len(found) < limit else None
            if document is not None:
                found.append(document)
    if not found:
        raise InputMissingError(
            f"{path} has no new lines of text since {since}", hint="an earlier eval.perplexity_since"
        )
    return sorted(found, key=lambda one: one.path)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IntegrityError(
            f"git cannot compare the commits of {path}: {error.strerror}",
            hint="a partial clone lacks files: git fetch --refetch --filter=blob:limit=1g",
        ) from error


def _changed(repository: Repository, before: str, after: str) -> list[tuple[str, str, str]]:
    """(path, old blob or "", new blob) of added, changed and moved files."""
    raw = repository.git("diff", "--raw", "-z", "-M", "--no-abbrev", "--diff-filter=AMR", before, after)
    parts = iter(raw.split("\0"))
    found = []
    for head in parts:
        if not head:
            continue
        _, mode, old, new, status = head.removeprefix(":").split(" ")
        name = next(parts)
        if status[0] == "R":
            name = next(parts)
        if mode in _FILES and not _GENERATED.search(name):
            found.append((name, "" if status[0] == "A" else old, new))
    return found


def _document(repository: Repository, name: str, old: str, new: str) -> Document | None:
    """The file in pieces; None when it is no text, too long, or has no new line that says anything."""
    data = repository.content(new)
    if not data or len(data) > LARGEST or b"\0" in data or data.startswith(LFS):
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    if old:
        fresh = set()
        plain = "--no-ext-diff", "--no-textconv"  # or git runs what the repository's settings name
        for first, count in _HUNK.findall(repository.git("diff", "--unified=0", *plain, old, new)):
            fresh |= set(range(int(first) - 1, int(first) - 1 + int(count or 1)))
    else:
        fresh = set(range(len(lines)))
    pieces: list[Piece] = []
    for number, line in enumerate(lines):
        if pieces and pieces[-1].new == (number in fresh):
            pieces[-1] = Piece(pieces[-1].text + line, pieces[-1].new)
        else:
            pieces.append(Piece(line, number in fresh))
    says = any(piece.new and piece.text.strip() for piece in pieces)
    return Document(_shown(name), tuple(pieces)) if says else None


def _shown(name: str) -> str:
    """A path that a report can hold: bytes that are no UTF-8 as `\\xe9`, so that no two files are one."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
