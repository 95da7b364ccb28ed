"""Reading folders that a model filled: by descriptors, following no link, opening no pipe and no device.

Names are bytes. Used by the keeper for copies (`layers.py`) and for what changed (`changes.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

DEEPEST = 200  # folders within folders; deeper ones are refused, not followed
_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL))
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLargeError(ValueError):
    """What is to be read is larger, deeper or more than the limits; says which."""


@contextmanager
def folder(name: bytes | str, within: int | None = None) -> Iterator[int]:
    """A folder's descriptor. Raises OSError when it is a link or no folder."""
    fd = os.open(name, _FOLDER, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def file(name: bytes, within: int) -> Iterator[int]:
    """A regular file's descriptor. Raises OSError when it has become anything else.

    Looked at before it is opened: opening a socket, or the device that says "deleted" in an overlay's layer,
    fails as a machine might.
    """
    place = os.open(name, _PLACE, dir_fd=within)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(name))
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def still(opening: AbstractContextManager[int]) -> Iterator[int | None]:
    """What `folder` or `file` opens; None when it has meanwhile become nothing, or something else."""
    with ExitStack() as stack:
        fd = None
        try:
            fd = stack.enter_context(opening)
        except OSError as error:
            expect(error)
        yield fd


def expect(error: OSError) -> None:
    """Let pass what reading something comes to that has meanwhile become nothing, or something else.

    Jobs that a model left behind can see to that; were it a failure of ours, they could undo their own grade.
    """
    if error.errno not in _CHANGED:
        raise error


def entries(fd: int) -> list[tuple[bytes, os.stat_result]]:
    """Names and what they are, sorted by name; what vanishes meanwhile is left out."""
    found = []
    for name in sorted(os.fsencode(text) for text in os.listdir(fd)):
        try:
            found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
        except FileNotFoundError:
            continue
    return found


def is_whiteout(found: os.stat_result) -> bool:
    """Whether an entry of an overlay's layer says "deleted"."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int) -> bool:
    """Whether a folder of a layer hides what the layers below have in it."""
    try:
        return os.getxattr(fd, _opaque()) in (b"y", b"x")
    except OSError:
        return False


def make_opaque(fd: int) -> None:
    """Mark a folder so."""
    os.setxattr(fd, _opaque(), b"y")


def _opaque() -> str:
    """The mark as the overlay is mounted: a command can write the user's, so root reads only its own."""
    return "user.overlay.opaque" if os.geteuid() else "trusted.overlay.opaque"


def content(name: bytes, within: int, limit: int) -> bytes:
    """A regular file's bytes. Raises TooLargeError over `limit`."""
    with file(name, within) as fd:
        if os.fstat(fd).st_size > limit:
            raise TooLargeError(f"{os.fsdecode(name)!r} is larger than {limit} bytes")
        parts = []
        left = limit
        while part := os.read(fd, min(left + 1, _PIECE)):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise TooLargeError(f"{os.fsdecode(name)!r} is larger than {limit} bytes")
    return b"".join(parts)


def same(one: int, other: int) -> bool:
    """Whether two files have the same bytes, and are programs both or neither."""
    first, second = os.fstat(one), os.fstat(other)
    if first.st_size != second.st_size or (first.st_mode ^ second.st_mode) & 0o100:
        return False
    places = range(0, first.st_size, _PIECE)
    return all(os.pread(one, _PIECE, place) == os.pread(other, _PIECE, place) for place in places)


def copy_data(source: int, target: int) -> None:
    """Copy a file's bytes and its length, holes staying holes."""
    size = os.fstat(source).st_size
    place = 0
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
            end = min(os.lseek(source, place, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole from here, or it was cut meanwhile
        os.lseek(target, place, os.SEEK_SET)
        while place < end:
            sent = os.sendfile(target, source, place, end - place)
            if not sent:
                return
            place += sent
    os.ftruncate(target, size)


def size(fd: int, depth: int = 0) -> tuple[int, int]:
    """Bytes that a copy of a folder takes, in whole pages, and how many entries it has."""
    if depth > DEEPEST:
        raise TooLargeError(f"folders deeper than {DEEPEST}")
    total, count = 4096, 1
    for name, found in entries(fd):
        if stat.S_ISDIR(found.st_mode):
            with still(folder(name, fd)) as inner:
                more = size(inner, depth + 1) if inner is not None else (0, 0)
            total, count = total + more[0], count + more[1]
        else:
            total, count = total + (min(found.st_size, found.st_blocks * 512) // 4096 + 2) * 4096, count + 1
    return total, count


def remove(name: bytes, within: int) -> None:
    """Delete an entry with all in it, if it is there."""
    try:
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=within)
        return
    with folder(name, within) as fd:
        for inner, _ in entries(fd):
            remove(inner, fd)
    os.rmdir(name, dir_fd=within)
