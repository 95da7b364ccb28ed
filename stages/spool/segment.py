"""One segment file: the writer's open end of it, and reading it as a whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cursorbench.files import sync
from stages import faults
from stages.spool import frames
from stages.spool.index import SegmentRow

FOLDER = "segments"
QUARANTINE = "quarantine"


def path_of(spool_dir: Path, segment: int) -> Path:
    """Where segment number `segment` lies."""
    return spool_dir / FOLDER / f"{segment:08d}.seg"


def numbers(spool_dir: Path) -> list[int]:
    """Numbers of the segment files that are there, ascending."""
    return sorted(int(path.stem) for path in (spool_dir / FOLDER).glob("[0-9]*.seg") if path.stem.isdigit())


def size(spool_dir: Path) -> int:
    """Bytes of all segment files; those that `rtrl gc` removes meanwhile count as nothing."""
    total = 0
    with os.scandir(spool_dir / FOLDER) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


def set_aside(spool_dir: Path, number: int, offset: int, torn: bytes) -> None:
    """Keep the bytes of a write that was cut short, for its owner only, whatever the umask."""
    path = spool_dir / QUARANTINE / f"{number:08d}-{offset}.torn"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(torn)


class SegmentFile:
    """A segment being written. Not thread-safe: the writer holds its lock around every call.

    `size` counts whole frames only: a write that failed half-way is cut off again. After a sync that failed
    the system may have dropped what was not written, and says of the next one that it went well: `keep` takes
    those bytes into memory, and the next `sync` writes them again first.
    """

    def __init__(self, spool_dir: Path, number: int, first_seq: int, created: int) -> None:
        self.number = number
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.created = created
        self.generations = 0
        self.events = 0
        self.max_at = 0
        self.sealed = False
        self.synced_name = False
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self.path = path_of(spool_dir, number)
        self.fd = os.open(self.path, flags, 0o600)
        self.size = 0
        self._synced = 0
        self._kept = b""
        try:
            self._write(frames.pack_header(number, first_seq, created))
        except OSError:  # the next attempt takes the same number
            os.close(self.fd)
            self.path.unlink()
            raise

    @property
    def lost(self) -> bool:
        """Whether somebody removed the file: what is written to it from now on is nowhere."""
        return os.fstat(self.fd).st_nlink == 0

    def append(self, kind: frames.Kind, seq: int, body: bytes) -> int:
        """Hand one frame to the operating system. Returns its offset.

        Raises:
            OSError: it could not be written (disk full); the file is as it was before.
        """
        offset = self.size
        self._write(frames.pack(kind, seq, body))
        self.last_seq = seq
        return offset

    def seal(self) -> None:
        """Write the footer: nothing more will come."""
        faults.point("spool.seal.before")
        self._write(frames.pack(frames.Kind.FOOTER, self.last_seq, b""))
        faults.point("spool.seal.after")
        self.sealed = True

    def row(self) -> SegmentRow:
        """What the index shall say of this segment."""
        return SegmentRow(
            self.number,
            "sealed" if self.sealed else "active",
            self.first_seq,
            self.last_seq,
            self.size,
            self.generations,
            self.events,
            self.max_at,
            self.created,
        )

    def sync(self) -> None:
        """Make everything written so far survive a power cut. Raises OSError: `keep`, and try again."""
        size = self.size
        if self._kept:
            with Path(f"/proc/self/fd/{self.fd}").open("r+b") as again:  # `fd` itself only ever appends
                again.seek(self._synced)
                again.write(self._kept)
        faults.point("spool.fsync.before")
        os.fsync(self.fd)
        faults.point("spool.fsync.after")
        self._synced, self._kept = size, b""
        if not self.synced_name:
            sync(self.path.parent)
            faults.point("spool.folder_fsync.after")
            self.synced_name = True

    def keep(self) -> None:
        """A sync failed: remember what is not synced, while the system has it. The caller holds the lock."""
        begun = self._synced + len(self._kept)
        self._kept += os.pread(self.fd, self.size - begun, begun)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes already written."""
        return os.pread(self.fd, length, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def _write(self, data: bytes) -> None:
        faults.point("spool.append.before")
        written = 0
        try:
            while written < len(data):
                written += os.write(self.fd, memoryview(data)[written:])
        except OSError:
            os.ftruncate(self.fd, self.size)
            raise
        self.size += len(data)
        faults.point("spool.append.after")


def read_frame(spool_dir: Path, segment: int, offset: int) -> frames.Frame | None:
    """The frame at `offset` of a segment, or None when it cannot be read."""
    try:
        with path_of(spool_dir, segment).open("rb") as file:
            file.seek(offset)
            head = file.read(frames.FRAME.size)
            if len(head) < frames.FRAME.size:
                return None
            return frames.read_at(head + file.read(frames.FRAME.unpack(head)[1]), 0)
    except FileNotFoundError:
        return None
