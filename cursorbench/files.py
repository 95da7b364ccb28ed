"""Files that others find whole, old or new, whoever is killed while they are written; a file's digest.

Not for: folders, several files at once, what is appended to.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # of a folder: of shares of other systems, and some FUSE


def write_whole(
    path: Path,
    content: bytes,
    *,
    private: bool = False,
    durable: bool = True,
    renaming: AbstractContextManager[None] | None = None,
) -> None:
    """Replace a file: written beside it, then renamed. Several may write one file; the last one's stays.

    Args:
        private: readable by its owner only, whatever the umask.
        durable: the content survives a power cut; not for caches, which are made again.
        renaming: entered around the rename.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(beside, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(fd)
        with renaming or nullcontext():
            beside.rename(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Make a file's content durable, or the names in a folder, where its file system does that at all."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC or not path.is_dir():
            raise OSError(error.errno, error.strerror, str(path)) from error  # its own names no file
    finally:
        os.close(fd)


def sha256_of(path: Path) -> str:
    """sha256 (hex) of a file, piece by piece: it may be larger than the memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
