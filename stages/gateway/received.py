"""Records of other systems, told over HTTP: about our generations they are events, the others are kept.

Each record goes through the adapter that reads such logs from disk (`cursorbench/sessions/`): what it cannot
read is told to the sender, what says nothing of a session is not kept. Records about a generation of the
sender's own API key are its events in the spool; what only repeats such a generation is left out, since the
spool has it exactly; everything else is sealed into the inbox, on disk before the answer, for
`rtrl collect --received`.
Not for: HTTP (`telemetry.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cursorbench.sessions import definitions
from cursorbench.sessions import items as said
from cursorbench.sessions.kinds import Adapter, adapters
from cursorbench.sessions.memory import MemoryLog
from cursorbench.sessions.reading import MAX_LINE
from cursorbench.sessions.seen import Seen
from stages import reactions
from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.gateway.attribution import Who
from stages.gateway.config import GatewayConfig
from stages.gateway.disk_queue import Queue
from stages.gateway.errors import unavailable
from stages.gateway.event_data import problem
from stages.gateway.ids import is_id, of_uuid
from stages.gateway.links import Links
from stages.gateway.metrics import Metrics
from stages.gateway.received_events import Told, event_of, itself, not_later
from stages.inbox.records import OWN
from stages.inbox.writer import InboxWriter, Received
from stages.owners import own_name
from stages.records import Event
from stages.spool import EventResult, SpoolWriter
from stages.verdicts import Verdicts

log = logging.getLogger("rtrl.gateway")
_SESSIONS = 10_000  # sessions known to be of our own generations
_NO_RECORD = "not a record"
_NOT_WRITTEN = "the records could not be written; send them again"
_NO_RULES = Verdicts()
_OURS = (said.AgentTurn, said.UserTurn, said.Completion)

Item = said.Item


@dataclass
class Taken:
    """What became of the records of a request. `rejected` counts by reason, without content."""

    kept: int = 0
    events: int = 0
    known: int = 0
    passed_over: int = 0
    not_written: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def message(self) -> str:
        """Why records were rejected, "" when none was."""
        return "; ".join(f"{n} {reason}" for reason, n in self.rejected.most_common())


@dataclass
class _Sorted:
    """The records of a request by what is to be done with them."""

    kept: list[bytes] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    taken: Taken = field(default_factory=Taken)
    own: set[tuple[str, str, str]] = field(default_factory=set)  # sessions known to be ours since now


class Intake:
    """Takes records in, of any number of requests at a time."""

    def __init__(
        self,
        config: GatewayConfig,
        spool: SpoolWriter,
        inbox: InboxWriter,
        links: Links,
        metrics: Metrics,
        verdicts: Sequence[Verdicts],
        pseudonym: Callable[[bytes], str],
    ) -> None:
        self._verdicts, self._pseudonym = verdicts, pseudonym
        self._config, self._spool, self._links, self._metrics = config, spool, links, metrics
        self._queue = Queue(inbox)
        # not with the first record: another version may lie in the place of this one by then
        self._adapters: dict[str, Adapter] = adapters()
        self._sessions: OrderedDict[bytes, None] = OrderedDict()

    async def take(self, kind: str, key_id: str, who: Who, lines: Sequence[bytes | None]) -> Taken:
        """Record what is right in `lines`, each one record for the adapter `kind`; None is no record.

        Returns when all of it survives the death of this process.

        Raises:
            ApiError: 429 when too much waits for the disk, 503 when the disk takes nothing. Send all again.
        """
        if who.no_train:
            self._metrics.received(kind, "no_train", len(lines))
            return Taken(not_written=len(lines))
        found = await asyncio.to_thread(self._sort, kind, key_id, who.user, lines)
        try:
            if found.events:  # first: a full inbox does not keep them out, and sent again they are known
                self._attach(found, await asyncio.to_thread(self._spool.append_events, found.events))
            if found.own:  # a collect leaves out what of them was kept before, or will be after a restart
                marks = [json.dumps([kind, session]).encode() for _, _, session in sorted(found.own)]
                await self._queue.put(Received(key_id, who.user, OWN, marks))
                self._remember(found.own)
            if found.kept:
                await self._queue.put(Received(key_id, who.user, kind, found.kept))
        except DependencyDownError as error:
            raise unavailable("capture_unavailable", _NOT_WRITTEN, retry_after=10) from error
        self._count(kind, found)
        return found.taken

    def _attach(self, found: _Sorted, results: Sequence[EventResult]) -> None:
        for event, result in zip(found.events, results, strict=True):
            self._metrics.event(event.type, result.status)
            if result.status == "rejected":
                found.taken.rejected[result.reason] += 1
                found.taken.events -= 1

    def _count(self, kind: str, found: _Sorted) -> None:
        taken = found.taken
        taken.kept = len(found.kept)
        for status in ("kept", "known", "passed_over"):
            self._metrics.received(kind, status, getattr(taken, status))
        self._metrics.received(kind, "no_train", taken.not_written)
        self._metrics.received(kind, "events", taken.events)
        self._metrics.received(kind, "rejected", taken.rejected.total())

    def _sort(self, kind: str, key_id: str, user: str, lines: Sequence[bytes | None]) -> _Sorted:
        found, wall = _Sorted(), now_ms()
        for line in lines:
            items = _NO_RECORD if line is None else self._read(kind, line)
            if isinstance(items, str):
                found.taken.rejected[items] += 1
                if line is not None and len(line) <= MAX_LINE and items != _NO_RECORD:
                    found.kept.append(line)  # in quarantine of every collect, until an adapter reads it
            elif not items:
                found.taken.passed_over += 1
            else:
                assert line is not None
                self._place(found, kind, key_id, user, line, items, wall)
        return found

    def _read(self, kind: str, line: bytes) -> list[Item] | str:
        """What the adapter reads in a record; why it reads nothing."""
        lines = MemoryLog.of("received", lambda: [line])
        try:
            with definitions.left_out():  # calls are checked against their schemas when they are collected
                items = list(self._adapters[kind].read(lines, Seen()))
        except Exception as error:  # noqa: BLE001  one record of a request; the others are good
            log.error("a record of the kind %s cannot be read: %s", kind, type(error).__name__)
            return f"cannot be read: {type(error).__name__}"
        good: list[Item] = [
            item for item in items if not isinstance(item, said.Quarantined | said.SessionStart)
        ]
        reasons = [item.reason for item in items if isinstance(item, said.Quarantined)]
        return reasons[0] if reasons and not good else good

    def _place(
        self,
        found: _Sorted,
        kind: str,
        key_id: str,
        user: str,
        line: bytes,
        items: list[Item],
        wall: int,
    ) -> None:
        """One readable record: ours, events of ours, or to be kept."""
        answers = {item.id for item in items if isinstance(item, said.AgentTurn)}
        owners = {owner for one in answers if is_id(one) and (owner := self._owner(one))}
        if owners - {key_id}:
            found.taken.rejected["other_key"] += 1
            return
        names = {item.id: item.name for item in items if isinstance(item, said.ToolUse)}
        events, tells, same = list[Event](), bool(owners), Counter[tuple[str, ...]]()
        for item in items:
            generation = self._about(item, key_id, user)
            told = self._reaction(item, names) if generation else None
            if told is not None:
                own = itself(item, told, line)
                what = own, same[own]
                events.append(event_of(kind, key_id, generation, told, item, what, wall, self._pseudonym))
                same[own] += 1
                tells |= not isinstance(item, said.Feedback)
        if not self._config.client_clock:
            events = [not_later(event, wall) for event in events]
        found.events += events
        found.taken.events += len(events)
        sessions = {(key_id, user, item.session) for item in items}
        known = {one for one in sessions if _mark(one) in self._sessions or one in found.own}
        if tells:
            found.own |= {one for one in sessions - known if one[2]}
        ours = owners or (not any(answers) and sessions == known)
        if ours or (events and not any(isinstance(item, _OURS) for item in items)):
            found.taken.known += not events
        elif any(self._is_plain(item, key_id, user) for item in items):
            found.taken.not_written += not events
        else:
            found.kept.append(line)

    def _is_plain(self, item: Item, key_id: str, user: str) -> bool:
        """Whether it is feedback of a no-train answer: a demonstration is what that should have been."""
        generation = self._about(item, key_id, user) if isinstance(item, said.Feedback) else ""
        owner = self._spool.owner(generation) if generation else None
        return owner is not None and owner.plain

    def _owner(self, generation_id: str) -> str:
        """The API key that made a generation, "" when this spool does not know it."""
        owner = self._spool.owner(generation_id)
        return owner.key_id if owner else ""

    def _about(self, item: Item, key_id: str, user: str) -> str:
        """The generation that a reaction is about, "" when it is none of ours."""
        if isinstance(item, said.ToolEnd | said.Edit | said.Interrupt):
            return self._links.call(key_id, item.id)
        if not isinstance(item, said.Feedback):
            return ""
        if item.target:
            if is_id(item.target):
                return item.target
            one, others = of_uuid(item.target)
            return "" if others and not self._owner(one) else one
        return self._links.episode(key_id, own_name(item.session, key_id, user)) or self._recorded(
            item.session, key_id, user
        )

    def _recorded(self, episode: str, key_id: str, user: str) -> str:
        """The last generation of the user's episode that is recorded as `NAME@x...x`, "" for none."""
        last = episode.rpartition("/")[2]  # of what is no conversation each generation is an episode
        found = last if is_id(last) else self._links.episode(key_id, episode)
        owner = self._spool.owner(found) if found else None
        return found if owner is not None and (owner.key_id, owner.user) == (key_id, user) else ""

    def _reaction(self, item: Item, names: dict[str, str]) -> Told | None:
        told: Told | None = None
        if isinstance(item, said.ToolEnd):
            told = reactions.of_tool(item, names.get(item.id, ""))
        elif isinstance(item, said.Edit):
            told = reactions.of_edit(item)
        elif isinstance(item, said.Interrupt):
            told = "interrupted", {}
        elif isinstance(item, said.Feedback):
            return self._feedback(item)
        return told if told is not None and not problem(*told) else None

    def _feedback(self, item: said.Feedback) -> Told | None:
        """As it is told: what it means, `collect.metrics` of the line says that collects it, and may say
        otherwise by then. Words of a label are told where some line has a rule of them."""
        value = item.value.strip().lower() if isinstance(item.value, str) else item.value
        told = "feedback", {"name": item.name, "value": value}
        rules = [each for each in self._verdicts if each.has(item.name)]
        if not rules:
            told = _NO_RULES.of(item) or told
        elif any(each.of(item) for each in rules):
            return told
        return None if problem(*told) else told

    def _remember(self, sessions: set[tuple[str, str, str]]) -> None:
        self._sessions |= dict.fromkeys(map(_mark, sorted(sessions)))
        while len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)


def _mark(session: tuple[str, str, str]) -> bytes:
    """Stands for a session: clients say how long its name is."""
    return hashlib.blake2b("\0".join(session).encode(errors="replace"), digest_size=16).digest()
