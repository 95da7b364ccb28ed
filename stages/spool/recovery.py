"""What a killed writer left behind is put in order: index caught up, torn tail cut, segment sealed.

Runs under the writer's lock, before a new writer starts or when a reader finds no writer alive.
Idempotent: killed half-way, the next run does the rest.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from stages import faults
from stages.errors import LockedError
from stages.spool import codec, frames, segment
from stages.spool.damage import Damage
from stages.spool.frames import Kind
from stages.spool.index import Batch, EventRow, GenerationRow, Index, SegmentRow

LOCK_FILE = "writer.lock"
RESERVED = 1 << 32  # record numbers kept for what a lost file may hold behind its indexed part


class WriterLock:
    """The kernel's lock that makes one process the spool's writer; freed when that process dies."""

    def __init__(self, spool_dir: Path, wait_s: float = 0.0) -> None:
        """Take the lock. A writer waits for `wait_s`: a reader holds it for the length of a recovery.

        Raises:
            LockedError: another process writes.
        """
        fd = os.open(spool_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                holder = os.pread(fd, 64, 0).decode(errors="replace").strip() or "unknown"
                os.close(fd)
                raise LockedError(
                    f"another process writes to {spool_dir} (pid {holder})", hint="stop that gateway first"
                )
            time.sleep(0.02)
        self._fd = fd
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let others write."""
        os.close(self._fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def recover(spool_dir: Path, index: Index) -> list[Damage]:
    """Bring index and segments into agreement. Returns the damage found now; it is on record then."""
    _finish_deletions(spool_dir, index)
    rows = {row.id: row for row in (SegmentRow(*r) for r in index.rows("SELECT * FROM segments"))}
    found: list[Damage] = []
    for number in segment.numbers(spool_dir):
        row = rows.get(number)
        if row is None or row.state == "active":
            found += _recover_segment(spool_dir, index, number, row)
    for row in rows.values():
        if row.state == "active" and not segment.path_of(spool_dir, row.id).exists():
            found.append(_seal_short(index, row, 0, "missing"))
    return found


def index_again(index: Index, row: SegmentRow, found: list[frames.Frame], size: int) -> None:
    """The file of a damaged segment was put back: index the records that the index lacks.

    They may lie behind its indexed part: written, and not indexed yet, when writer and file were lost.
    Numbers only grow, also where some damage is left.

    Args:
        found: all good frames of the segment.
        size: of the file; what follows its last frame is a torn tail.
    """
    tally = _Tally(row.id, None, frames.Header(row.id, row.first_seq, row.created))
    for frame in found:
        tally.add(frame)
    end = max(row.bytes, found[-1].end)
    now = tally.row(end)
    grown = ("last_seq", "generations", "events", "max_at")
    tally.batch.segments[row.id] = now._replace(**{n: max(getattr(row, n), getattr(now, n)) for n in grown})
    index.commit(tally.batch)
    if size > end:
        index.record([Damage(row.id, end, size - end, "torn_tail")], told=True)


def next_numbers(index: Index) -> tuple[int, int]:
    """Number of the next segment, and of the next record."""
    number, seq = index.rows(
        "SELECT coalesce(max(id), 0), coalesce(max(max(last_seq, first_seq - 1)), 0) FROM segments"
    )[0]
    return int(number) + 1, int(seq) + 1


def _finish_deletions(spool_dir: Path, index: Index) -> None:
    for (number,) in index.rows("SELECT id FROM segments WHERE state = 'deleting'"):
        segment.path_of(spool_dir, number).unlink(missing_ok=True)
        faults.point("spool.delete.unlink.after")
        index.write("UPDATE segments SET state = 'deleted' WHERE id = ?", [(number,)])
    there = set(segment.numbers(spool_dir))
    for (number,) in index.rows("SELECT id FROM segments WHERE state = 'deleted'"):
        if number in there:  # a power cut undid the removal of its name
            segment.path_of(spool_dir, number).unlink()


def _recover_segment(spool_dir: Path, index: Index, number: int, row: SegmentRow | None) -> list[Damage]:
    """Index what the segment holds beyond its indexed bytes, cut its torn tail, seal it."""
    path = segment.path_of(spool_dir, number)
    data = path.read_bytes()
    header = frames.unpack_header(data)
    start = row.bytes if row is not None else frames.HEADER.size
    damages: list[Damage] = []
    if header is None and row is None and len(data) <= frames.HEADER.size:
        path.unlink()  # killed while the file was made: nothing was ever in it
        return []
    if header is None:
        damages.append(Damage(number, 0, frames.HEADER.size, "header"))
    if row is not None and len(data) < row.bytes:
        return [*damages, _seal_short(index, row, len(data), "truncated")]
    tally = _Tally(number, row, header)
    end = start
    for item in frames.scan(data, start):
        if isinstance(item, frames.Bad):
            if item.tail:
                damages.append(_cut_tail(spool_dir, path, data, item, number))
                break
            damages.append(Damage(number, item.offset, item.end - item.offset, "crc"))
            end = item.end
            continue
        end = item.end
        if not codec.readable(item.kind, item.body):
            damages.append(Damage(number, item.offset, item.end - item.offset, "unreadable"))
            tally.last_seq = max(tally.last_seq, item.seq)
            continue
        tally.add(item)
    size = end if tally.footer else _write_footer(path, tally)
    faults.point("spool.recover.index.before")
    tally.batch.segments[number] = tally.row(size)
    index.commit(tally.batch)
    faults.point("spool.recover.index.after")
    index.record([d for d in damages if d.reason != "torn_tail"], told=False)
    index.record([d for d in damages if d.reason == "torn_tail"], told=True)
    return damages


def _cut_tail(spool_dir: Path, path: Path, data: bytes, bad: frames.Bad, number: int) -> Damage:
    """Keep the bytes of a write that was cut short, and remove them from the segment."""
    segment.set_aside(spool_dir, number, bad.offset, data[bad.offset :])
    faults.point("spool.recover.truncate.before")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, bad.offset)
        os.fsync(fd)
    finally:
        os.close(fd)
    faults.point("spool.recover.truncate.after")
    return Damage(number, bad.offset, bad.end - bad.offset, "torn_tail")


def _write_footer(path: Path, tally: _Tally) -> int:
    """Seal the segment file. Returns its size."""
    footer = frames.pack(Kind.FOOTER, tally.last_seq, b"")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, footer)
        faults.point("spool.recover.footer.after")
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _seal_short(index: Index, row: SegmentRow, size: int, reason: str) -> Damage:
    """The file is shorter than what was synced, or gone: something outside of this program did that.

    It may have held more than was indexed. No other record gets those numbers, so that they are all right
    if the file is put back.
    """
    lost, events = index.lost_in(row.id, size, row.bytes)
    damage = Damage(row.id, size, row.bytes - size, reason, lost, events)
    index.record([damage], told=False)
    sealed = "UPDATE segments SET state = 'sealed', last_seq = ? WHERE id = ?"
    index.write(sealed, [(row.last_seq + RESERVED, row.id)])
    return damage


class _Tally:
    """Counts of one segment while its tail is read again."""

    def __init__(self, number: int, row: SegmentRow | None, header: frames.Header | None) -> None:
        self.number = number
        self.batch = Batch()
        self.footer = False
        self.first_seq = row.first_seq if row else header.first_seq if header else 0
        self.last_seq = row.last_seq if row else self.first_seq - 1
        self.generations = row.generations if row else 0
        self.events = row.events if row else 0
        self.max_at = row.max_at if row else 0
        self.created = row.created if row else header.created if header else 0

    def add(self, frame: frames.Frame) -> None:
        self.last_seq = max(self.last_seq, frame.seq)
        self.first_seq = self.first_seq or frame.seq
        if frame.kind == Kind.FOOTER:
            self.footer = True
            return
        if frame.kind == Kind.GENERATION:
            self.generations += 1
            g, sealed = codec.unpack_generation(frame.body)
            self.max_at = max(self.max_at, g.at)
            self.batch.generations.append(
                GenerationRow(
                    g.id, frame.seq, self.number, frame.offset, g.key_id, g.user, g.at, int(not sealed)
                )
            )
            return
        state = "pending" if frame.kind == Kind.PENDING else "attached"
        self.events += state == "attached"
        e = codec.unpack_event(frame.body)[0].event
        if state == "attached":
            self.max_at = max(self.max_at, e.at)
        self.batch.events.append(
            EventRow(e.key_id, e.id, e.generation_id, frame.seq, self.number, frame.offset, e.wall, state)
        )

    def row(self, size: int) -> SegmentRow:
        return SegmentRow(
            self.number, "sealed", self.first_seq, self.last_seq, size,
            self.generations, self.events, self.max_at, self.created,
        )  # fmt: skip
