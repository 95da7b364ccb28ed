"""Second pass of `collect`: copies what the plan takes into the parts of an interactions artifact.

Payloads are copied sealed as they are. Only a prompt that extends tokens outside its episode is opened
and sealed again in full, so that an episode can be read, or forgotten, by itself; and the session's next
request becomes the `user_message` a client did not send. Not for: deciding (`plan.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from stages import rows, schemas, tables
from stages.collect.parts import OpenPart
from stages.collect.plan import Plan
from stages.collect.scan import Scan
from stages.errors import IntegrityError
from stages.records import Event, Generation
from stages.spool.codec import encode, encode_data, event_aad, generation_aad
from stages.tokens import open_payload
from stages.vault import UserForgottenError, Vault

if TYPE_CHECKING:
    from stages.spool import ChainReader


class Sealer:
    """Writes one interactions artifact under `folder`. Feed generations, then events, then `finish`."""

    def __init__(self, folder: Path, scan: Scan, plan: Plan, vault: Vault, chains: ChainReader) -> None:
        self._folder = folder
        self._scan = scan
        self._plan = plan
        self._vault = vault
        self._chains = chains
        self._part_of = np.full(len(scan.episodes), -1)
        self._part_of[plan.taken] = np.arange(len(plan.taken)) // schemas.PART_EPISODES
        self._parts: dict[int, OpenPart] = {}
        self._heads: dict[int, Generation] = {}
        wanted = plan.follow_up[plan.taken]
        self._asked_by = {int(row): int(e) for e, row in zip(plan.taken, wanted, strict=True) if row >= 0}
        self._n_generations = np.zeros(len(scan.episodes), dtype=np.int64)
        self._n_events = np.zeros(len(scan.episodes), dtype=np.int64)
        self._quarantine: list[dict[str, str]] = []
        self.counts: Counter[str] = Counter()

    def quarantine(self, record_id: str, episode: str, reason: str) -> None:
        """Leave one record out, with its reason."""
        self._quarantine.append({"id": record_id, "episode": episode, "reason": reason})
        self.counts[f"quarantined:{reason}"] += 1

    def generations(self, found: Iterable[tuple[int, Generation, bytes]]) -> None:
        """All generations of the window, in order of seq."""
        row = 0
        for seq, generation, sealed in found:
            while row < len(self._scan.g_seq) and self._scan.g_seq[row] < seq:
                self._lost(row)
                row += 1
            if row < len(self._scan.g_seq) and self._scan.g_seq[row] == seq:
                self._generation(row, generation, sealed)
                row += 1
        for lost in range(row, len(self._scan.g_seq)):
            self._lost(lost)

    def events(self, found: Iterable[tuple[int, Event, str, bytes]]) -> None:
        """All events of the window, in order of seq."""
        row = 0
        for seq, event, user, sealed in found:
            while row < len(self._scan.v_seq) and self._scan.v_seq[row] < seq:
                row += 1
            if row < len(self._scan.v_seq) and self._scan.v_seq[row] == seq:
                self._event(row, event, user, sealed)
                row += 1

    def finish(self, ripe_at: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Write episodes and quarantine, close everything. A part may have lost all of its generations."""
        taken = self._plan.taken.tolist()
        for n, start in enumerate(range(0, max(1, len(taken)), schemas.PART_EPISODES)):
            self._part(n).close()
            codes = [e for e in taken[start : start + schemas.PART_EPISODES] if e in self._heads]
            path = self._folder / schemas.part_name(n) / schemas.EPISODES_FILE
            tables.write(path, self._episodes(codes, ripe_at))
            self.counts["episodes"] += len(codes)
        quarantine = pa.Table.from_pylist(self._quarantine, schema=schemas.QUARANTINE)
        tables.write(self._folder / schemas.QUARANTINE_FILE, quarantine)

    def _generation(self, row: int, generation: Generation, sealed: bytes) -> None:
        if row in self._asked_by:
            self._follow_up(self._asked_by[row], generation, sealed)
        if not self._plan.take_generation[row]:
            return
        if generation.defect:
            self.quarantine(generation.id, generation.episode, generation.defect)
        if self._plan.reseal[row]:
            try:
                generation, sealed = self._in_full(generation, sealed)
            except UserForgottenError:
                self.quarantine(generation.id, generation.episode, "forgotten")
                return
            except IntegrityError:
                self.quarantine(generation.id, generation.episode, "prompt_base_unreadable")
                return
        episode = int(self._scan.g_episode[row])
        self._heads.setdefault(episode, generation)
        self._n_generations[episode] += 1
        self.counts["generations"] += 1
        seq = int(self._scan.g_seq[row])
        self._part(int(self._part_of[episode])).add_generation(rows.SealedGeneration(seq, generation, sealed))

    def _in_full(self, generation: Generation, sealed: bytes) -> tuple[Generation, bytes]:
        """The generation with its whole prompt in its own payload."""
        payload, tokens = self._chains.open(generation, sealed)
        payload = msgspec.structs.replace(payload, prompt=tokens.prompt.tobytes())
        generation = msgspec.structs.replace(generation, prompt_base="", prompt_prefix=0)
        aad = generation_aad(generation.id)
        return generation, self._vault.seal(generation.user, encode(payload), aad, like=sealed)

    def _follow_up(self, episode: int, generation: Generation, sealed: bytes) -> None:
        """The session's next request, as the message of its user to the episode before."""
        event = Event(
            id=f"next:{generation.id}",
            key_id=generation.key_id,
            generation_id=self._scan.ids[int(self._plan.last_row[episode])],
            type="user_message",
            at=generation.at,
            wall=generation.wall,
        )
        try:
            text = open_payload(self._vault, generation.user, generation.id, sealed).request
            data, aad = encode_data({"text": text}), event_aad(event.key_id, event.id)
            moved = self._vault.seal(generation.user, data, aad, like=sealed)
        except IntegrityError as error:
            self.quarantine(generation.id, generation.episode, f"follow_up_{error.kind}")
            return
        if not text:
            return
        row = rows.SealedEvent(
            seq=int(self._scan.g_seq[self._plan.follow_up[episode]]),
            event=event,
            user=generation.user,
            sealed=moved,
            episode=self._scan.episodes[episode],
            derived=True,
        )
        self._add_event(episode, row)

    def _event(self, row: int, event: Event, user: str, sealed: bytes) -> None:
        target = int(self._scan.v_generation[row])
        if not self._plan.take_event[row]:
            if target >= 0 and not self._scan.v_own_key[row]:
                self.quarantine(event.id, "", "foreign_key")
            return
        episode = int(self._scan.g_episode[target])
        name = self._scan.episodes[episode]
        self._add_event(episode, rows.SealedEvent(int(self._scan.v_seq[row]), event, user, sealed, name))

    def _add_event(self, episode: int, row: rows.SealedEvent) -> None:
        self._n_events[episode] += 1
        self.counts["events"] += 1
        self.counts["derived_messages"] += row.derived
        self._part(int(self._part_of[episode])).add_event(row)

    def _lost(self, row: int) -> None:
        if self._plan.take_generation[row]:
            self.quarantine(
                self._scan.ids[row], self._scan.episodes[int(self._scan.g_episode[row])], "damaged"
            )

    def _part(self, n: int) -> OpenPart:
        if n not in self._parts:
            folder = self._folder / schemas.part_name(n)
            self._parts[n] = OpenPart(folder)
        return self._parts[n]

    def _episodes(self, codes: list[int], ripe_at: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
        heads = [self._heads[int(code)] for code in codes]
        at = np.asarray(codes, dtype=np.int64)
        first, last = self._plan.first_row[at], self._plan.last_row[at]
        columns: dict[str, Any] = {name: [getattr(h, name) for h in heads] for name in _FROM_HEAD}
        columns |= {
            "id": [self._scan.episodes[code] for code in codes],
            "checkpoint": [head.spans[0].checkpoint if head.spans else "" for head in heads],
            "lag": self._plan.lag[at],
            "first_at": self._scan.g_at[first],
            "last_at": self._plan.last_at[at],
            "ripe_at": ripe_at[at],
            "n_generations": self._n_generations[at],
            "n_events": self._n_events[at],
            "first_seq": self._scan.g_seq[first],
            "last_seq": self._scan.g_seq[last],
        }
        arrays = [pa.array(columns[f.name], type=f.type) for f in schemas.EPISODES]
        return pa.Table.from_arrays(arrays, schema=schemas.EPISODES)


_FROM_HEAD = ("key_id", "user", "session", "line", "arm")
