"""A few MiB of the store that give way when the disk is full, so that `rtrl gc` can run there.

SQLite writes before it removes, and in WAL mode even reads with a file of its own: on a disk with no block
left the command that makes room would fail as all others do. Not for: how much is free (`errors.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "ballast"
BYTES = 4 << 20  # a transaction of gc over some thousand artifacts


def lay(store: Path) -> bool:
    """Take the blocks, if they are there to be had; whether they are taken now."""
    path = store / FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, BYTES)
        finally:
            os.close(fd)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()  # half of it would be none
        return False
    return True


@contextmanager
def given(store: Path) -> Iterator[None]:
    """Within, its blocks are free; afterwards it is laid again where there is room. Killed within, the next
    gc lays it."""
    with contextlib.suppress(OSError):
        (store / FILE).unlink()
    try:
        yield
    finally:
        if store.is_dir():
            lay(store)
