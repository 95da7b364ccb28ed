"""Things that are made once and kept in a folder: made whole or not at all, by one process at a time.

What is made lies below a name that says what it was made from, so nothing in it ever changes. A process
that dies leaves its half in `tmp/`, where the next one removes it. What it had started (pip) may go on there
for a while, so no half is ever made in another's place. Not for: results of trials.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from cursorbench.errors import DependencyDownError


def made_once(cache: Path, kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `cache/kind/key`, made by `make(folder)` when it is not there.

    `make` gets a folder that does not exist yet, beside the final place, which is renamed when it returns.
    Two processes that want the same wait for each other.

    Raises:
        DependencyDownError: (exit 13) the cache cannot be written.
    """
    final = cache / kind / key
    if final.is_dir():
        return final
    with _locked(cache, f"{kind}-{key}"):
        if final.is_dir():
            return final
        name = f"{kind}-{key}"
        half = cache / "tmp" / f"{name}.{uuid.uuid4().hex[:8]}"
        try:
            half.parent.mkdir(parents=True, exist_ok=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            make(half)
            half.rename(final)
        finally:
            for left in (half.parent / name, *half.parent.glob(f"{name}.*")):  # of those that died, too
                shutil.rmtree(left, ignore_errors=True)
    return final


@contextlib.contextmanager
def _locked(cache: Path, name: str) -> Iterator[None]:
    place = cache / "locks" / f"{name}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        stream = place.open("a")
    except OSError as error:
        raise DependencyDownError(
            f"the cache {cache} cannot be written: {error.strerror}", hint="choose a folder that can be"
        ) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
