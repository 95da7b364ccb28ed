"""All that files and git repositories hold of session logs, once, in the order in which it is to be read.

Agents' own logs come before what tells of the same sessions: files, then checkpoints that repositories hold,
then transcripts and exports, then notes, then traces.

Not for: which files there are (`kinds.files`), which kind's word on a session counts (`tellers.py`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cursorbench.errors import InputMissingError, RtrlError
from cursorbench.sessions import entire_branch, git_ai, given, kinds
from cursorbench.sessions.copies import Copies
from cursorbench.sessions.entire_beside import in_order
from cursorbench.sessions.git_environment import only_reading
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.tellers import LAST, SECOND_HAND

IN_REPOSITORIES = {"entire": entire_branch.read_repository, "git-ai": git_ai.read_repository}
VANISHED = "a file vanished after it was listed"
REFUSED = b"git does not read this repository: `git -C PATH log` says why"
_REFS = {"entire": entire_branch.REFS, "git-ai": ("refs/notes/ai",)}


def read(files: Iterable[Path], paths: Sequence[Path], kind: str = "") -> Iterator[tuple[str, Read]]:
    """(kind, item) of every item. Of files with the same bytes the first is read.

    Args:
        files: what is read of the disk; those of checkpoints are put in their order.
        paths: those of them that are git repositories are asked for what branches, refs and notes hold.
        kind: read all as this kind; "" recognises each file.
    """
    seen, copies, later = Seen(), Copies(), list[tuple[Path, str]]()
    for path in in_order(list(files)):
        if copies.again(path):
            continue
        of = kind or given.kind_of(path)
        if of in SECOND_HAND:
            later.append((path, of))
        else:
            yield from _file(path, of, seen)
    for path in paths:
        if (kind or "entire") in IN_REPOSITORIES and refs(path) == REFUSED:
            yield "", Quarantined(Place(str(path)), REFUSED.decode())
    held = [each for each in IN_REPOSITORIES if kind in ("", each)]
    yield from _held("entire", paths, seen) if "entire" in held else ()
    for path, of in later:
        yield from _file(path, of, seen) if of != LAST else ()
    yield from _held("git-ai", paths, seen) if "git-ai" in held else ()
    for path, of in later:
        yield from _file(path, of, seen) if of == LAST else ()


def refs(path: Path, *held: str) -> bytes:
    """Names and digests of the refs that hold logs (of these kinds); empty for what is no git repository.

    `REFUSED` where git reads it not: it belongs to somebody else, say.
    """
    if not given.is_repository(path):
        return b""
    wanted = [ref for kind in held or _REFS for ref in _REFS[kind]]
    try:
        listed = subprocess.run(
            ["git", "-C", str(path), "for-each-ref", "--format=%(refname) %(objectname)", *wanted],
            env=only_reading(),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return REFUSED
    return listed.stdout if listed.returncode == 0 else REFUSED


def _file(path: Path, kind: str | None, seen: Seen) -> Iterator[tuple[str, Read]]:
    try:
        yield from kinds.read(path, kind, seen)
    except InputMissingError:
        yield "", Quarantined(Place(str(path)), VANISHED)


def _held(kind: str, paths: Sequence[Path], seen: Seen) -> Iterator[tuple[str, Read]]:
    """What the repositories hold of this kind in branches, refs or notes."""
    for path in paths:
        if refs(path, kind) in (b"", REFUSED):
            continue
        try:
            for item in IN_REPOSITORIES[kind](path, seen):
                yield kind, item
        except (OSError, RtrlError):
            yield kind, Quarantined(Place(str(path)), "its branch or notes cannot be read")
