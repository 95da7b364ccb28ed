"""Everybody else's side of the spool: ranges, iteration, exact tokens, damage, deletion.

May run while the gateway writes: it sees what has been synced. Damaged stretches are skipped and
reported, never silently: through `on_damage`, or, without it, by `SpoolDamagedError` until `tell`.
Reading records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from stages import faults
from stages.errors import InputMissingError, IntegrityError, LockedError
from stages.records import Event, Generation
from stages.spool import codec, frames, segment
from stages.spool.chains import ChainReader
from stages.spool.damage import Damage, SpoolDamagedError
from stages.spool.frames import Kind
from stages.spool.index import Index, SegmentRow
from stages.spool.opening import open_index, put_in_order, wrong_with
from stages.spool.recovery import WriterLock, index_again
from stages.vault import Vault

OnDamage = Callable[[Damage], None]
_WAY_OUT = "stop the gateway that writes it, and run `rtrl verify` again: it is made anew from the segments"


class SpoolRange(NamedTuple):
    """What the spool holds. Seqs number all records; with none, first_seq is last_seq + 1.
    `max_at` is the newest event time (ms)."""

    first_seq: int
    last_seq: int
    generations: int
    events: int
    max_at: int


class Spool:
    """Read access to a spool. One object per thread is not needed; iterators are independent."""

    def __init__(self, spool_dir: Path, index: Index, made_anew: str = "") -> None:
        self._dir = spool_dir
        self._index = index
        self.made_anew = made_anew  # why the index was, just now

    @classmethod
    def open(cls, spool_dir: Path, *, whole: bool = False) -> Spool:
        """The spool in `spool_dir`. What a killed writer left is put in order first, if no writer is alive.

        With `whole` all of the index is read as well. One that is damaged is made anew likewise.

        Raises:
            InputMissingError: there is no such folder.
            StoreError: the index has another schema.
            IntegrityError: the index is damaged, and belongs to a living writer.
        """
        if not spool_dir.is_dir():
            raise InputMissingError(f"no spool at {spool_dir}", hint="`rtrl serve` captures into one")
        try:
            lock = WriterLock(spool_dir)
        except LockedError:
            index = open_index(spool_dir, locked=False)
            if whole and (wrong := wrong_with(index)):
                index.close()
                raise IntegrityError(f"the index {index.path} is damaged: {wrong}", hint=_WAY_OUT) from None
            return cls(spool_dir, index)
        try:
            index, _, made_anew = put_in_order(spool_dir, whole=whole)
        finally:
            lock.release()
        return cls(spool_dir, index, made_anew)

    @classmethod
    def reading(cls, spool_dir: Path) -> Spool:
        """The spool in `spool_dir`, for a worker of somebody who has opened it: nothing is put in order."""
        return cls(spool_dir, open_index(spool_dir, locked=False))

    @property
    def dir(self) -> Path:
        """Where it lies."""
        return self._dir

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def range(self) -> SpoolRange:
        """What is there now (synced, not deleted)."""
        row = self._index.rows(
            "SELECT min(first_seq) FILTER (WHERE state IN ('active', 'sealed')), max(last_seq),"
            " sum(generations) FILTER (WHERE state IN ('active', 'sealed')),"
            " sum(events) FILTER (WHERE state IN ('active', 'sealed')), max(max_at) FROM segments"
        )[0]
        last = int(row[1] or 0)
        return SpoolRange(int(row[0] or last + 1), last, int(row[2] or 0), int(row[3] or 0), int(row[4] or 0))

    def generations(
        self, first_seq: int, last_seq: int, *, on_damage: OnDamage | None = None
    ) -> Iterator[tuple[int, Generation, bytes]]:
        """(seq, generation, sealed payload) in order of seq, both ends included.

        Sealed is b"" for no-train.

        Raises:
            SpoolDamagedError: without `on_damage`, when damage is met that nobody was told of yet.
        """
        for frame in self._frames(first_seq, last_seq, on_damage):
            if frame.kind == Kind.GENERATION:
                yield (frame.seq, *codec.unpack_generation(frame.body))

    def events(
        self, first_seq: int, last_seq: int, *, on_damage: OnDamage | None = None
    ) -> Iterator[tuple[int, Event, str, bytes]]:
        """(seq, event, user, sealed data) in order of seq. `open_event` puts the data back.

        Only events whose generation is in the spool: others wait. Raises as `generations`.
        """
        for frame in self._frames(first_seq, last_seq, on_damage):
            if frame.kind == Kind.EVENT:
                stored, sealed = codec.unpack_event(frame.body)
                yield frame.seq, stored.event, stored.user, sealed

    def record(self, generation_id: str) -> tuple[Generation, bytes]:
        """One generation and its sealed payload.

        Raises:
            InputMissingError: it is not in the spool (any more).
            IntegrityError: it was, but cannot be read.
        """
        row = self._index.generation(generation_id)
        if row is None:
            raise InputMissingError(f"generation {generation_id} is not in the spool", hint="was it deleted?")
        frame = segment.read_frame(self._dir, row.segment, row.offset)
        readable = frame is not None and codec.readable(frame.kind, frame.body)
        if frame is None or frame.kind != Kind.GENERATION or not readable:
            raise IntegrityError(
                f"generation {generation_id} cannot be read from segment {row.segment}",
                hint="`rtrl verify --full` lists what is damaged",
            )
        return codec.unpack_generation(frame.body)

    def chains(self, vault: Vault) -> ChainReader:
        """A reader of payloads that puts full prompts together; keep it for a whole pass."""
        return ChainReader(vault, self.record)

    def users(self) -> set[str]:
        """Users of generations that have content (no-train ones have none)."""
        return {row[0] for row in self._index.rows("SELECT DISTINCT user FROM generations WHERE plain = 0")}

    def no_train(self, before: int) -> list[tuple[str, str]]:
        """(id, user) of the generations before this seq whose request was no-train."""
        query = "SELECT id, user FROM generations WHERE plain = 1 AND seq < ?"
        return [(row[0], row[1]) for row in self._index.rows(query, (before,))]

    def ends(self) -> list[str]:
        """Of each of these users the ids of the oldest such generation and of the newest."""
        query = "SELECT id, {}(seq) FROM generations WHERE plain = 0 GROUP BY user"
        return list({row[0]: None for end in ("min", "max") for row in self._index.rows(query.format(end))})

    def segments(self) -> list[SegmentRow]:
        """The segments that are there, oldest first."""
        return self._index.segments()

    def segments_of(self, first_seq: int, last_seq: int) -> list[SegmentRow]:
        """The segments that may hold records of a range, oldest first."""
        return self._index.segments(first_seq, last_seq)

    def read_segment(self, row: SegmentRow) -> tuple[list[frames.Frame], list[Damage]]:
        """Good frames and damage of one segment; of an active one in its indexed part. Records nothing."""
        try:
            data = self.path_of(row.id).read_bytes()[: row.bytes if row.state == "active" else None]
        except FileNotFoundError:
            if row.id not in {there.id for there in self._index.segments()}:
                return [], []  # deleted since `row` was read
            return [], [self._damage(row.id, 0, row.bytes, "missing")]
        good: list[frames.Frame] = []
        damages: list[Damage] = []
        if frames.unpack_header(data) is None and len(data) >= frames.HEADER.size:
            damages.append(self._damage(row.id, 0, frames.HEADER.size, "header"))
        end = min(frames.HEADER.size, len(data))
        for item in frames.scan(data, end):
            if isinstance(item, frames.Frame):
                end = item.end
                if codec.readable(item.kind, item.body):
                    good.append(item)
                else:
                    damages.append(self._damage(row.id, item.offset, item.end, "unreadable"))
            elif not item.tail or item.offset < row.bytes <= len(data):  # else a write that was cut short
                damages.append(self._damage(row.id, item.offset, item.end, "crc"))
        if len(data) < row.bytes:
            damages.append(self._damage(row.id, end, row.bytes, "truncated"))
        return good, damages

    def damages(self) -> list[Damage]:
        """All damage on record, oldest segment first."""
        return self._index.damages()

    def recheck(self) -> list[Damage]:
        """Damage on record that is still there, by reading its segments again. Records nothing.

        Torn tails, which were cut off, are none.
        """
        on_record = [d for d in self.damages() if d.reason != "torn_tail"]
        numbers = {d.segment for d in on_record}
        rows = [row for row in self._index.segments() if row.id in numbers] if numbers else []
        still = {place for row in rows for place in _places(self.read_segment(row)[1])}
        return [d for d in on_record if (d.segment, d.offset) in still]

    def heal(self) -> list[Damage]:
        """`recheck`; what reads clean by now (its file was put back) is indexed, and damage no more.

        Returns the damage that is left on record.
        """
        left = self.recheck()
        healed = [d for d in self.damages() if d.reason != "torn_tail" and d not in left]
        numbers = {d.segment for d in healed}
        for row in self._index.segments() if numbers else ():
            if row.id in numbers and row.state == "sealed" and (found := self.read_segment(row)[0]):
                with suppress(FileNotFoundError):  # deleted at this moment
                    index_again(self._index, row, found, self.path_of(row.id).stat().st_size)
        places = [(d.segment, d.offset) for d in healed]
        self._index.write("DELETE FROM damage WHERE segment = ? AND offset = ?", places)
        return left

    def untold(self, damages: list[Damage]) -> list[Damage]:
        """Those of `damages` that nobody was told of yet."""
        if not damages:
            return []
        told = _places(self._index.damages()) - _places(self._index.damages(untold=True))
        return [d for d in damages if (d.segment, d.offset) not in told]

    def tell(self, damages: list[Damage]) -> None:
        """Somebody was told of `damages`: they are known from now on. Call it after the telling."""
        self._index.record(damages, told=True)

    def path_of(self, number: int) -> Path:
        """The file of a segment."""
        return segment.path_of(self._dir, number)

    def waiting_segments(self) -> set[int]:
        """Numbers of the segments with events that wait for their generation."""
        return {row.segment for row in self._index.pending()}

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete sealed segments, whole. A kill in between is finished by the next who opens the spool."""
        for number in numbers:
            self._index.mark_deleting(number)
            faults.point("spool.delete.mark.after")
            self.path_of(number).unlink(missing_ok=True)
            faults.point("spool.delete.unlink.after")
            self._index.write("UPDATE segments SET state = 'deleted' WHERE id = ?", [(number,)])

    def _frames(self, first_seq: int, last_seq: int, on_damage: OnDamage | None) -> Iterator[frames.Frame]:
        for row in self._index.segments(first_seq, last_seq):
            good, damages = self.read_segment(row)
            if on_damage is not None:
                for damage in damages:
                    on_damage(damage)
            elif news := self.untold(damages):
                raise SpoolDamagedError(news)
            yield from (f for f in good if first_seq <= f.seq <= last_seq and f.kind != Kind.FOOTER)

    def _damage(self, number: int, offset: int, end: int, reason: str) -> Damage:
        return Damage(number, offset, end - offset, reason, *self._index.lost_in(number, offset, end))


def _places(damages: list[Damage]) -> set[tuple[int, int]]:
    return {(d.segment, d.offset) for d in damages}


def open_event(event: Event, user: str, sealed: bytes, vault: Vault) -> Event:
    """The event with its data, opened if it was sealed.

    Raises:
        UserForgottenError: the user's key is gone.
        IntegrityError: it does not open.
    """
    if not sealed:
        return event
    plain = vault.unseal(user, sealed, codec.event_aad(event.key_id, event.id))
    return msgspec.structs.replace(event, data=codec.decode_data(plain))
