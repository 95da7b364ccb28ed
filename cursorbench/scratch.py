"""Temporary folders that a killed process does not leave for ever: whoever makes the next removes its own.

Each is locked (`flock`) by who uses it; the lock goes with the process. On a disk without locks nobody
removes what is left. Not for: folders that other processes are to find.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

FRESH_S = 60  # so young a folder may be one that is not locked yet


@contextmanager
def scratch(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """A folder for as long as the block lasts; those of the same prefix whose processes are dead go first.
    What cannot be removed at the end, as somebody who is being killed still writes there, goes as those do.

    Args:
        place: where it is made; the system's folder for such without one.
    """
    place = place or Path(tempfile.gettempdir())
    _sweep(place, prefix)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True)
    with made as folder, ExitStack() as held:
        with suppress(OSError):  # a disk without locks, as some of clusters are
            held.enter_context(_locked(Path(folder)))
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError when somebody else has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _sweep(place: Path, prefix: str) -> None:
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, or somebody uses it or removes it at this moment
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > FRESH_S:
                with _locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)
