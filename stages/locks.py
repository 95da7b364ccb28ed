"""Locks between processes: `flock` on files under `store/locks/`, so that the kernel frees them.

The file's text names the holder and is information only; the lock itself is the kernel's.
Files are opened close-on-exec: a child started by the holder keeps the lock alive only between its fork
and its exec, which whoever comes after a killed holder waits for (`GRACE_S`).
Lock files are never deleted (deleting one that somebody has open would split the lock in two),
except those of runs, whose names are never used again.

Not for: threads within a process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stages.errors import LockedError

POLL_S = 0.05
LONGEST_S = 4 * POLL_S  # that one poll counts for: a machine that stood still gave the holder no time either
GRACE_S = 0.5
BRIEF_S = 20.0
WAIT_HERE = "wait for it to end, or give --lock-timeout SECONDS to wait here"
RUN_AGAIN = "wait for it to end, then run the command again"  # where that flag is not, or does not count


class FileLock:
    """A held lock. Made by `acquire`, freed by `release` or by the death of the process."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path

    @contextmanager
    def held(self) -> Iterator[FileLock]:
        """For a block, freed at its end."""
        try:
            yield self
        finally:
            self.release()

    def release(self) -> None:
        """Free the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return _open_file(path, os.O_CREAT)


def _open_file(path: Path, flags: int = 0) -> int:
    """To write, as NFS wants it of locks; what is there can be locked on a disk that is read-only, too."""
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raise


def _try(fd: int, path: Path, shared: bool = False) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise OSError(error.errno, error.strerror, str(path)) from error  # flock's own names no file
    return True


def holder_of(path: Path) -> dict[str, Any]:
    """What the last holder wrote about itself; empty when unknown."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def describe(holder: dict[str, Any]) -> str:
    """One phrase for people: `run train-… (pid 12 on host, since …)`."""
    who = holder.get("run") or holder.get("what") or "an unknown holder"
    where = f"pid {holder.get('pid', '?')} on {holder.get('host', '?')}"
    since = f", since {holder['since']}" if holder.get("since") else ""
    return f"{who} ({where}{since})"


def acquire(
    path: Path,
    *,
    what: str,
    timeout: float = 0.0,
    shared: bool = False,
    run: str = "",
    hint: str = WAIT_HERE,
    brief: bool = False,
) -> FileLock:
    """Take the lock at `path`, waiting at most `timeout` seconds.

    Args:
        what: what the lock protects, for the message of whoever finds it taken.
        run: the holder's run id, if it has one.
        hint: what whoever finds it taken can do.
        brief: whether the holder will soon be done; whoever finds it taken then waits for `BRIEF_S` at least,
            for somebody asked for their work and nobody for the holder's; another brief one does not.

    Raises:
        LockedError: (exit 11) still held by somebody else after `timeout`; names the holder.
    """
    fd = _open(path)
    # a moment at least: `is_free` holds a lock while it looks, a killed holder's child until its exec
    waited, patience = 0.0, max(timeout, GRACE_S)
    try:
        while not _try(fd, path, shared):
            if waited >= patience:
                holder = holder_of(path)
                if brief or waited >= BRIEF_S or not holder.get("brief"):
                    raise LockedError(f"{what} is locked by {describe(holder)}", hint=hint)
            slept = time.monotonic()
            time.sleep(POLL_S)
            waited += min(time.monotonic() - slept, LONGEST_S)
        if not shared:
            _write_holder(fd, what, run, brief)
    except BaseException:
        os.close(fd)
        raise
    return FileLock(fd, path)


def _write_holder(fd: int, what: str, run: str, brief: bool) -> None:
    text = {
        "what": what,
        "run": run,
        "brief": brief,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _write(fd, text)


def _write(fd: int, holder: dict[str, Any]) -> None:
    """In one piece: who reads meanwhile finds the text of before or this one, and never none."""
    text = json.dumps(holder).encode()
    with contextlib.suppress(OSError):  # a full disk takes no text; the lock needs none
        os.pwrite(fd, text.ljust(os.fstat(fd).st_size), 0)
        os.ftruncate(fd, len(text))


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at this instant; who looks meanwhile is no holder. A missing file is
    free. Not for locks that several share."""
    try:
        fd = _open_file(path)
    except FileNotFoundError:
        return True
    try:
        return _try(fd, path, shared=True)
    finally:
        os.close(fd)


def occupy(folder: Path) -> FileLock:
    """Hold a folder that this process works in, so that nobody takes it for left behind (`in_use`).

    The folder itself is locked: a copy of the file that names it, in another workspace, changes nothing.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks on folders
        fcntl.flock(fd, fcntl.LOCK_EX)  # free but for an instant in which somebody looks
    return FileLock(fd, folder)


def in_use(folder: Path) -> bool:
    """Whether a process that lives has the folder occupied. One that is not there is not in use."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(fd, folder, shared=True)
    except OSError:  # a file system without locks on folders
        return False
    finally:
        os.close(fd)


@contextmanager
def hold(
    path: Path,
    *,
    what: str,
    timeout: float = 0.0,
    shared: bool = False,
    run: str = "",
    hint: str = WAIT_HERE,
) -> Iterator[FileLock]:
    """`acquire` for a block."""
    with acquire(path, what=what, timeout=timeout, shared=shared, run=run, hint=hint).held() as lock:
        yield lock


def note_run(path: Path, run: str) -> None:
    """Add the run's id to the text of a lock that this process holds."""
    text = {**holder_of(path), "run": run}
    with contextlib.suppress(OSError), path.open("r+b") as stream:
        _write(stream.fileno(), text)
