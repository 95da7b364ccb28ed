"""Received records for whoever reads them: as logs for the adapters, for `rtrl verify` and for `rtrl gc`.

Safe while a gateway writes: a frame that is not whole yet at the end of the newest segment is not there yet.
Not for: what the records mean (`cursorbench/sessions/`).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cursorbench.files import sync
from cursorbench.sessions.memory import MemoryLog
from stages.errors import IntegrityError
from stages.inbox import records
from stages.inbox.records import Batch, Sender
from stages.spool import frames, segment
from stages.vault import OVERHEAD, UserForgottenError, Vault

LAST = 1 << 62


class _Found(NamedTuple):
    seq: int
    segment: int
    offset: int
    batch: Batch


@dataclass
class Left:
    """What reading left out: batches of users who were forgotten, damaged ones, lines told before.

    By place, as a reader may open a log more than once.

    Attributes:
        opened: by user, the head of the first batch that was opened. What is made of the user's records is
            sealed `like` it: nobody who is forgotten meanwhile lives on under a new key.
    """

    opened: dict[str, bytes] = field(default_factory=dict)
    _places: set[tuple[str, int, int]] = field(default_factory=set)

    def out(self, why: str, number: int, line: int = 0) -> None:
        """A batch, or a line of one, was left out."""
        self._places.add((why, number, line))

    @property
    def counts(self) -> Counter[str]:
        """How many of each: `forgotten` and `damaged` batches, `repeated` lines."""
        return Counter(why for why, _, _ in self._places)


class Inbox:
    """The received records of a workspace."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def facts(self, last: int = LAST) -> dict[str, Any]:
        """What stands for the batches up to seq `last` in a run's record: their number and digest."""
        digest, n, seen = hashlib.sha256(), 0, 0
        for _, item in self._items():
            if isinstance(item, frames.Frame) and item.kind == records.KIND and item.seq <= last:
                digest.update(hashlib.sha256(item.body).digest())
                n, seen = n + 1, max(seen, item.seq)
        return {"last_seq": seen, "batches": n, "digest": f"sha256:{digest.hexdigest()}"}

    def batches_of(self, user: str) -> int:
        """How many batches are sealed for a user; nothing is opened."""
        return sum(found.batch.user == user for found in self._found(LAST, Left()))

    def users(self) -> set[str]:
        """Users for whom batches are sealed; nothing is opened."""
        return {found.batch.user for found in self._found(LAST, Left())}

    def ends(self) -> Iterator[tuple[str, bytes, bytes]]:
        """(user, sealed lines, associated data) of the oldest and of the newest batch of each user."""
        oldest: dict[str, _Found] = {}
        newest: dict[str, _Found] = {}
        for found in self._found(LAST, Left()):
            oldest.setdefault(found.batch.user, found)
            newest[found.batch.user] = found
        for found in (*oldest.values(), *newest.values()):
            if (frame := segment.read_frame(self._folder, found.segment, found.offset)) is not None:
                batch, sealed = records.unpack(frame.body)
                yield batch.user, sealed, records.aad(batch.id)

    def logs(self, vault: Vault, last: int, left: Left) -> Iterator[tuple[str, MemoryLog, Sender]]:
        """(kind, log, whose) of each sender's records of a kind, in the order in which they came.

        A log is unsealed as it is read, one batch at a time; the same line of a sender twice is told once.
        """
        groups: dict[tuple[str, str, str], list[_Found]] = {}
        for found in self._found(last, left):
            batch = found.batch
            groups.setdefault((batch.key_id, batch.user, batch.kind), []).append(found)
        for (key_id, user, kind), batches in groups.items():
            sender = records.sender(key_id, user)
            lines = partial(self._lines, batches, vault, left)
            yield kind, MemoryLog.of(f"received/{kind}@{sender.mark}", lines), sender

    def segments(self) -> list[tuple[int, Path]]:
        """Number and file of each segment, oldest first."""
        return [(number, segment.path_of(self._folder, number)) for number in segment.numbers(self._folder)]

    def _found(self, last: int, left: Left) -> Iterator[_Found]:
        for number, item in self._items():
            if isinstance(item, frames.Bad):
                left.out("damaged", -number, item.offset)
            elif item.kind == records.KIND and item.seq <= last:
                try:
                    yield _Found(item.seq, number, item.offset, records.unpack(item.body)[0])
                except ValueError:
                    left.out("damaged", item.seq)

    def _lines(self, batches: list[_Found], vault: Vault, left: Left) -> Iterator[bytes]:
        told: set[bytes] = set()
        for found in batches:
            frame = segment.read_frame(self._folder, found.segment, found.offset)
            if frame is None:
                left.out("damaged", found.seq)
                continue
            try:
                batch, sealed = records.unpack(frame.body)
                lines = records.unsqueeze(vault.unseal(batch.user, sealed, records.aad(batch.id)))
                left.opened.setdefault(batch.user, sealed[:OVERHEAD])
            except UserForgottenError:
                left.out("forgotten", found.seq)
                continue
            except (IntegrityError, ValueError):
                left.out("damaged", found.seq)
                continue
            for n, line in enumerate(lines):
                digest = hashlib.blake2b(line, digest_size=12).digest()
                if digest in told:
                    left.out("repeated", found.seq, n)
                else:
                    told.add(digest)
                    yield line

    def _items(self) -> Iterator[tuple[int, frames.Frame | frames.Bad]]:
        """Every frame and every stretch that is none, but for the end of a write in progress."""
        numbers = segment.numbers(self._folder) if self._folder.is_dir() else []
        for number in numbers:
            try:
                data = segment.path_of(self._folder, number).read_bytes()
            except FileNotFoundError:
                continue  # `rtrl gc` was faster
            if frames.unpack_header(data) is None:
                if number != numbers[-1] or len(data) > frames.HEADER.size:
                    yield number, frames.Bad(0, frames.HEADER.size, False)
                if len(data) <= frames.HEADER.size:
                    continue
            for item in frames.scan(data, frames.HEADER.size):
                if not (isinstance(item, frames.Bad) and item.tail and number == numbers[-1]):
                    yield number, item


def verify_inbox(folder: Path, deep: bool) -> tuple[dict[str, int], list[str]]:
    """(counts, problems): batches that are gone; with `deep` every record is read and its CRC checked.

    What is gone from the end nobody can tell: a killed writer leaves a newest segment like one cut short.
    """
    inbox, counts, problems = Inbox(folder), Counter[str](), list[str]()
    found = inbox.segments() if folder.is_dir() else []
    counts["segments"] = len(found)
    problems += _gaps(found)
    for number, item in inbox._items() if deep else ():
        if isinstance(item, frames.Bad):
            problems.append(f"received records {number:08d}: bytes {item.offset} to {item.end} are damaged")
        elif item.kind == records.KIND:
            counts["batches"] += 1
    return {"segments": counts["segments"], "batches": counts["batches"], "damaged": len(problems)}, problems


def _gaps(found: list[tuple[int, Path]]) -> Iterator[str]:
    """What each segment but the first begins with goes on where the one before ended; what does not is told.

    Their own numbers may leave one out: a writer that was killed making a file, or could not, takes the next.
    """
    expected = 0  # not known
    for number, path in found:
        try:
            first, last = _bounds(path)
        except FileNotFoundError:  # `rtrl gc` was faster
            expected = 0
            continue
        if first and expected and first != expected:
            yield f"received records {number:08d}: begins with batch {first}, where {expected} was to come"
        expected = last + 1 if first else 0


def _bounds(path: Path) -> tuple[int, int]:
    """First and last seq of a segment; last is one less in an empty one. (0, 0) without a header."""
    with path.open("rb") as file:
        header = frames.unpack_header(file.read(frames.HEADER.size))
        if header is None:
            return 0, 0
        file.seek(max(frames.HEADER.size, os.fstat(file.fileno()).st_size - frames.FRAME.size))
        end = frames.read_at(file.read(), 0)
        if end is not None and end.kind == frames.Kind.FOOTER:
            return header.first_seq, end.seq
        file.seek(0)  # its writer was killed, or it is being written
        there = frames.scan(file.read(), frames.HEADER.size)
        seqs = (item.seq for item in there if isinstance(item, frames.Frame))
        return header.first_seq, max(seqs, default=header.first_seq - 1)


def old_segments(folder: Path, keep_days: float, now: float, collected: int) -> list[Path]:
    """Complete segments that are old and of which no batch lies behind the seq `collected`.

    Args:
        now: s since 1970; a segment is old when its last record is `keep_days` older. The newest stays.
    """
    found = [path for _, path in Inbox(folder).segments()] if folder.is_dir() else []
    old = []
    for path, following in itertools.pairwise(found):
        with suppress(FileNotFoundError):  # another gc is at it
            if _first_seq(following) - 1 <= collected and now - path.stat().st_mtime >= keep_days * 86400:
                old.append(path)
    return old


def _first_seq(path: Path) -> int:
    """Of a segment; one without a header has none that is small enough."""
    with path.open("rb") as file:
        header = frames.unpack_header(file.read(frames.HEADER.size))
    return header.first_seq if header else LAST


def delete_segments(paths: list[Path]) -> None:
    """Delete segments whole. After a kill half-way, the rest is old the next time too."""
    for path in paths:
        path.unlink(missing_ok=True)
    if paths:
        sync(paths[0].parent)
