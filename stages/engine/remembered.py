"""What a checkpoint's folder said, while its disk is away: an engine may hold its weights all the same.

Folders are named by what is in them, so what was read once stays true. One that is there is always read. Not
for: folders whose content changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

from stages.errors import RtrlError

T = TypeVar("T")
FOLDERS = 8  # what is served, what was before, a canary, a holdback, and what they are made ready from


def remembered(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """`read`, which of a folder that is not there says what it said of it before; raises as it otherwise."""
    known: dict[Path, T] = {}

    @wraps(read)
    def reading(folder: Path) -> T:
        try:
            found = read(folder)
        except (RtrlError, OSError):
            if folder not in known or is_there(folder):
                raise
            return known[folder]
        known.pop(folder, None)
        known[folder] = found
        if len(known) > FOLDERS:
            del known[next(iter(known))]
        return found

    return reading


def is_there(folder: Path) -> bool:
    """Whether there is such a folder, on a disk that answers."""
    try:
        return folder.is_dir()
    except OSError:  # a network disk that does not answer
        return False
