"""Working trees as archives: packing an environment's folder, and comparing what came back with it.

The archive that comes back was made of a model's files by the image's `tar`. It is read here as data, in
memory, entry by entry; nothing is ever extracted on this machine.
"""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

from cursorbench.sandbox.changes import LARGEST, MOST, Change
from cursorbench.sandbox.tree import DEEPEST, TooLargeError

Side = tuple[int, bytes]  # git's mode, and content or a link's target
_LINK, _PROGRAM, _FILE = 0o120000, 0o100755, 0o100644


def pack(root: Path, out: Any) -> None:
    """Write the folder as an archive, everything belonging to the sandbox's user; links stay links."""

    def own(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 1000
        entry.uname = entry.gname = ""
        return entry if entry.isreg() or entry.isdir() or entry.issym() else None

    with tarfile.open(fileobj=out, mode="w", dereference=False) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, arcname=path.name, filter=own)


def changes(root: Path, archive: Any) -> list[Change]:
    """What the tree in an archive has changed of the folder.

    Raises:
        TooLargeError: more than LARGEST bytes changed, or more than MOST files.
    """
    archive.seek(0)
    found: list[Change] = []
    seen: dict[bytes, Side] = {}
    left = LARGEST
    with tarfile.open(fileobj=archive, mode="r:") as tree:
        for entry in tree:
            path = _name(entry.name)
            before = of_disk(root, path) if path else (0, b"")
            side = _side(tree, entry, max(LARGEST, len(before[1])))  # one that is unchanged may be larger
            if not path or side is None:
                continue
            if path.count(b"/") > DEEPEST:
                raise TooLargeError(f"folders deeper than {DEEPEST}")
            seen[path] = (side[0], b"") if before == side else side
            if before == side:
                continue
            left -= len(before[1]) + len(side[1])
            if left < 0 or len(found) >= MOST:
                raise TooLargeError(f"more than {LARGEST} bytes or {MOST} files changed")
            found.append(Change(path, before[0], side[0], before[1], side[1], _plain(root, path)))
    for path in _all(root):
        if path not in seen:
            mode, content = of_disk(root, path)
            found.append(Change(path, mode, 0, content, b"", True))
    return sorted(found, key=lambda change: change.path)


def _name(text: str) -> bytes:
    """The path below the tree; empty for the tree itself and for what leads out of it."""
    pure = PurePosixPath(text)
    parts = [part for part in pure.parts if part != "."]
    return b"" if pure.is_absolute() or ".." in parts else "/".join(parts).encode("utf-8", "surrogateescape")


def _side(tree: tarfile.TarFile, entry: tarfile.TarInfo, largest: int) -> Side | None:
    if entry.issym():
        return _LINK, entry.linkname.encode("utf-8", "surrogateescape")
    if not (entry.isreg() or entry.islnk()):
        return None
    if entry.size > largest:
        raise TooLargeError(f"{entry.name!r} is larger than {largest} bytes")
    source = tree.extractfile(entry)  # of a hard link, what it is a link to
    content = source.read(largest + 1) if source is not None else b""
    return (_PROGRAM if entry.mode & 0o100 else _FILE), content


def of_disk(root: Path, path: bytes) -> Side:
    """The same of the environment's folder; mode 0 when nothing is there."""
    place = root
    parts = path.decode("utf-8", "surrogateescape").split("/")
    for part in parts[:-1]:
        place /= part
        if place.is_symlink():
            return 0, b""
    place /= parts[-1]
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, b""
    if stat.S_ISLNK(found.st_mode):
        return _LINK, str(place.readlink()).encode("utf-8", "surrogateescape")
    if not stat.S_ISREG(found.st_mode):
        return 0, b""
    return (_PROGRAM if found.st_mode & 0o100 else _FILE), place.read_bytes()


def _plain(root: Path, path: bytes) -> bool:
    place = root
    for part in path.decode("utf-8", "surrogateescape").split("/")[:-1]:
        place /= part
        if place.is_symlink():
            return False
    return True


def _all(root: Path) -> list[bytes]:
    """Paths of all files and links of the folder."""
    return [
        path.relative_to(root).as_posix().encode("utf-8", "surrogateescape")
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    ]
