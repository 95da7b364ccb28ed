"""A lock that somebody else has, and gives back in a moment."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held_for_a_moment(path: Path, seconds: float = 0.2) -> Iterator[None]:
    """A process that is not ours has the lock, for a fifth of a second if not told otherwise."""
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process = subprocess.Popen(["sleep", str(seconds)], pass_fds=(stream.fileno(),))
    try:
        yield
    finally:
        process.wait(10)
