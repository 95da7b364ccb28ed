"""The gateway's side of the spool: generations and events in, each exactly once.

`append_generation` and `append_events` return when the record was handed to the operating system: it
survives SIGKILL of this process from then on. A background thread makes it survive a power cut and
visible to readers (`journal.py`).

Safe to call from several threads; one process at a time (kernel lock).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from stages.clock import now_ms
from stages.records import Event, Generation
from stages.spool import codec, segment
from stages.spool.chains import SessionCache, Tokens, suffixed
from stages.spool.frames import Kind
from stages.spool.index import EventRow, GenerationRow
from stages.spool.journal import Journal, Limits, SpoolFullError
from stages.spool.opening import put_in_order
from stages.spool.pending import Pending, forget_keys, left_over, pending_user
from stages.spool.recovery import WriterLock, next_numbers
from stages.spool.told import EventResult, Owner
from stages.vault import UserForgottenError, Vault

LOCK_WAIT_S = 5.0  # a reader that puts a killed writer's spool in order holds the lock for a moment


class SpoolWriter:
    """The one writer of a spool. `GatewayConfig` says what the limits mean."""

    def __init__(
        self,
        spool_dir: Path,
        vault: Vault,
        *,
        fsync_ms: float = 50.0,
        segment_bytes: int = 64 << 20,
        segment_seconds: float = 3600.0,
        session_cache_bytes: int = 256 << 20,
        max_pending_events: int = 10_000,
        pending_hours: float = 168.0,
    ) -> None:
        """Take the writer's lock and put in order what the last writer left.

        Raises:
            LockedError: another process writes to this spool.
            StoreError: the index has another schema.
        """
        spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = spool_dir
        self._vault = vault
        self._max_pending = max_pending_events
        self._pending_ms = int(pending_hours * 3_600_000)
        self._flock = WriterLock(spool_dir, wait_s=LOCK_WAIT_S)
        self._index, self.recovered, _ = put_in_order(spool_dir)
        limits = Limits(fsync_ms / 1000, segment_bytes, segment_seconds)
        self._journal = Journal(spool_dir, self._index, limits, *next_numbers(self._index))
        self._lock = self._journal.lock
        self._sessions = SessionCache(session_cache_bytes)
        self._expected: dict[str, Owner] = {}
        self._pending = Pending(self._index.pending())
        recorded = map(self._index.generation, self._pending.generations())
        self._waited_for = {row.id: row for row in recorded if row is not None}
        self._attach_waiting()
        self._forget(left_over(self._vault, self._pending))
        self.expire()
        self._journal.chore = self.expire

    def expect(self, generation_id: str, key_id: str, user: str, *, no_train: bool) -> None:
        """A generation with this id is being made; events for it may come from now on."""
        with self._lock:
            self._expected[generation_id] = Owner(key_id, user, no_train, False)

    def abandon(self, generation_id: str) -> None:
        """The expected generation will not be recorded."""
        with self._lock:
            self._expected.pop(generation_id, None)

    def append_generation(
        self, generation: Generation, tokens: Tokens, request: str = "", answer: str = ""
    ) -> int:
        """Record one generation. Returns its seq.

        `prompt_base`, `prompt_prefix` and the token counts of `generation` are set here. With
        `generation.no_train` nothing of tokens, request and answer is written.

        Raises:
            SpoolFullError: it could not be written.
        """
        with self._lock:
            file = self._journal.segment()
            # who was forgotten and came back has a new key: nothing may extend what the old one sealed
            epoch = 0 if generation.no_train else self._vault.epoch(generation.user)
            owner = (generation.user, str(epoch), generation.session)
            generation, depth = self._link(generation, tokens, owner)
            sealed = b"" if generation.no_train else self._seal(generation, tokens, owner, request, answer)
            body = codec.pack_generation(generation, sealed)
            offset, seq = self._journal.append(file, Kind.GENERATION, body)
            file.generations += 1
            file.max_at = max(file.max_at, generation.at)
            row = GenerationRow(
                generation.id, seq, file.number, offset,
                generation.key_id, generation.user, generation.at, int(generation.no_train),
            )  # fmt: skip
            self._journal.add(row)
            if not generation.no_train:
                self._sessions.add(owner, generation.id, tokens, depth)
            self._expected.pop(generation.id, None)
            if generation.id in self._pending:
                self._waited_for[generation.id] = row
            self._attach_waiting()
            return seq

    def append_events(self, events: Sequence[Event]) -> list[EventResult]:
        """Record events; each counts once by (key_id, id). May wait for the disk (new keys).

        Raises:
            SpoolFullError: not all could be written; those before are, and are duplicates when sent again.
        """
        self._vault.ensure(self._sealing_users(events))
        return [self._append_event(event) for event in events]

    def expire(self) -> int:
        """Give up events that have waited too long for their generation, every hour. Returns how many."""
        with self._lock:
            late = self._pending.pop_older(now_ms() - self._pending_ms)
            for row in late:
                self._journal.add(row._replace(state="expired"))
            self._forget(sorted({pending_user(row.generation_id) for row in late}))
        return len(late)

    def skip(self, last_seq: int) -> None:
        """Give no number up to `last_seq` to a record that comes from now on."""
        self._journal.skip(last_seq)

    def flush(self, timeout: float = 30.0) -> int:
        """Wait until everything appended so far survives a power cut and readers see it.

        Returns the last seq. Raises DependencyDownError when the disk does not follow.
        """
        return self._journal.flush(timeout)

    def seal(self) -> int:
        """Seal the active segment; the next record begins a new one. Returns the last seq."""
        with self._lock:
            self._journal.rotate()
        return self.flush()

    def close(self) -> None:
        """Seal, sync, stop the thread, free the lock."""
        self._journal.close()
        self._index.close()
        self._flock.release()

    @property
    def failed(self) -> Exception | None:
        """Why the spool can no longer be written, or None."""
        return self._journal.failed

    @property
    def last_seq(self) -> int:
        """Seq of the last record appended; 0 when there is none."""
        return self._journal.last_seq

    @property
    def lag(self) -> tuple[int, float]:
        """(records that are not synced yet, how many seconds the oldest of them has waited)."""
        return self._journal.lag

    @property
    def pending(self) -> int:
        """Events that wait for their generation."""
        return len(self._pending)

    def _append_event(self, event: Event) -> EventResult:
        with self._lock:
            if self._is_known(event):
                return EventResult("duplicate")
            owner = self.owner(event.generation_id)
            if owner is not None and owner.key_id != event.key_id:
                return EventResult("rejected", "other_key")
            if owner is not None and owner.recorded:
                self._write_event(event, owner.user, plain=owner.plain, state="attached")
                return EventResult("accepted")
            if self._pending.of_key(event.key_id) >= self._max_pending:
                return EventResult("rejected", "too_many_pending")
            user = owner.user if owner else pending_user(event.generation_id)
            self._write_event(event, user, plain=bool(owner and owner.plain), state="pending")
            return EventResult("pending")

    def _write_event(self, event: Event, user: str, *, plain: bool, state: str, received: int = 0) -> None:
        """`plain`: of a no-train generation, so its data is not written at all. `received`: seq so far."""
        data, sealed = event.data, b""
        if plain:
            data = {}
        elif codec.is_content(data):
            aad = codec.event_aad(event.key_id, event.id)
            data, sealed = {}, self._vault.seal(user, codec.encode_data(data), aad)
        file = self._journal.segment()
        body = codec.pack_event(msgspec.structs.replace(event, data=data), user, sealed, received)
        offset, seq = self._journal.append(file, Kind.EVENT if state == "attached" else Kind.PENDING, body)
        place = (seq, file.number, offset)
        row = EventRow(event.key_id, event.id, event.generation_id, *place, event.wall, state)
        self._journal.add(row)
        if state == "attached":
            file.events += 1
            file.max_at = max(file.max_at, event.at)
        else:
            self._pending.add(row)

    def _attach_waiting(self) -> None:
        """Of recorded generations; what finds no room on the disk waits for the next record."""
        with self._lock, suppress(SpoolFullError):
            for generation in list(self._waited_for.values()):
                self._promote(generation)
                del self._waited_for[generation.id]

    def _promote(self, generation: GenerationRow) -> None:
        """Events waited for `generation`: write them again as its own, sealed for its user."""
        keys = set[str]()
        for row in self._pending.each(generation.id):
            frame = segment.read_frame(self.folder, row.segment, row.offset)
            if row.key_id != generation.key_id or frame is None or not codec.readable(frame.kind, frame.body):
                self._journal.add(row._replace(state="refused"))
                continue
            stored, sealed = codec.unpack_event(frame.body)
            event = stored.event
            if stored.user == pending_user(generation.id):
                keys.add(stored.user)
            if sealed and not generation.plain:
                try:
                    data = self._vault.unseal(stored.user, sealed, codec.event_aad(event.key_id, event.id))
                except UserForgottenError:  # forgotten while it waited
                    self._journal.add(row._replace(state="refused"))
                    continue
                event = msgspec.structs.replace(event, data=codec.decode_data(data))
            plain = bool(generation.plain)
            self._write_event(event, generation.user, plain=plain, state="attached", received=row.seq)
        self._forget(sorted(keys))

    def _forget(self, waiting: Sequence[str]) -> None:
        """Nothing waits under these keys any more."""
        if waiting:
            self._journal.afterwards(partial(forget_keys, self._vault, waiting))

    def _sealing_users(self, events: Sequence[Event]) -> list[str]:
        """Whose keys the events will need. What will be refused needs none: nothing would take it away."""
        users, more = list[str](), Counter[str]()
        for event in events:
            if self._is_known(event):
                continue
            owner = self.owner(event.generation_id)
            if owner is None or not owner.recorded:  # it will wait, if it may
                more[event.key_id] += 1
                if self._pending.of_key(event.key_id) + more[event.key_id] > self._max_pending:
                    continue
            if codec.is_content(event.data) and not (owner and owner.plain):
                users.append(owner.user if owner else pending_user(event.generation_id))
        return users

    def _is_known(self, event: Event) -> bool:
        known = (event.key_id, event.id)
        return known in self._journal.events or self._index.event(*known) is not None

    def _link(self, generation: Generation, tokens: Tokens, owner: tuple[str, ...]) -> tuple[Generation, int]:
        """The generation with its prompt base set, and how deep that chain is."""
        self._sessions.of_segment(self._journal.epoch)
        base, prefix, depth = "", 0, 0
        if not generation.no_train:
            base, prefix, depth = self._sessions.base(owner, tokens.prompt)
        linked = msgspec.structs.replace(
            generation,
            prompt_base=base,
            prompt_prefix=prefix,
            prompt_tokens=len(tokens.prompt),
            output_tokens=len(tokens.output),
        )
        return linked, depth

    def _seal(self, generation: Generation, tokens: Tokens, owner: tuple[str, ...], *texts: str) -> bytes:
        base_routed = self._sessions.routed(owner, generation.prompt_base)
        payload = suffixed(generation, tokens, *texts, base_routed=base_routed)
        return self._vault.seal(generation.user, codec.encode(payload), codec.generation_aad(generation.id))

    def owner(self, generation_id: str) -> Owner | None:
        """Whose it is, None when that is not known."""
        row = self._journal.generations.get(generation_id) or self._index.generation(generation_id)
        if row is not None:
            return Owner(row.key_id, row.user, bool(row.plain), True)
        return self._expected.get(generation_id)
