"""What clients were promised, and whether it is there: acknowledged generations and events against the spool.

A generation counts as acknowledged when its client read the last byte of the answer, an event when its
POST was answered with 200 and it was not among the rejected.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.errors import RtrlError
from stages.spool import Spool, open_event
from stages.vault import Vault

EVERYTHING = 1 << 62


@dataclass(frozen=True)
class Answered:
    """A generation that a client has in full."""

    id: str
    request: str
    answer: str


@dataclass(frozen=True)
class Taken:
    """An event that the gateway said it has."""

    id: str
    generation_id: str
    data: dict[str, Any]


class Ledger:
    """All promises so far, kept in memory and in a file, so that a sweep can go on later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.generations: dict[str, Answered] = {}
        self.events: dict[str, Taken] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                kind, fields = json.loads(line)
                self._remember(Answered(**fields) if kind == "generation" else Taken(**fields))

    def note(self, promise: Answered | Taken) -> None:
        """A client has been promised this."""
        kind = "generation" if isinstance(promise, Answered) else "event"
        with self._lock:
            self._remember(promise)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([kind, asdict(promise)]) + "\n")

    def _remember(self, promise: Answered | Taken) -> None:
        if isinstance(promise, Answered):
            self.generations[promise.id] = promise
        else:
            self.events[promise.id] = promise

    def check(self, workspace: Path) -> list[str]:
        """Every promise that is not kept, and everything that is in the spool twice."""
        with self._lock:
            generations, events = dict(self.generations), dict(self.events)
        if not generations and not events:
            return []
        try:
            spool, vault = Spool.open(workspace / "spool"), Vault.open(workspace / "keys")
        except RtrlError as error:
            return [f"the spool cannot be opened: {error.message}"]
        try:
            return [
                *_generations(spool, vault, generations),
                *_events(spool, vault, events, workspace / "spool" / "spool.db"),
            ]
        finally:
            spool.close()
            vault.close()


def _generations(spool: Spool, vault: Vault, promised: dict[str, Answered]) -> list[str]:
    problems: list[str] = []
    seen: Counter[str] = Counter()
    chains = spool.chains(vault)
    damaged: list[str] = []
    for _, generation, sealed in spool.generations(
        0, EVERYTHING, on_damage=lambda damage: damaged.append(str(damage))
    ):
        seen[generation.id] += 1
        try:
            payload, tokens = chains.open(generation, sealed)
        except RtrlError as error:
            problems.append(f"generation {generation.id} cannot be read: {error.message}")
            continue
        if len(tokens.output) != generation.output_tokens or len(tokens.logprobs) != len(tokens.output):
            problems.append(f"generation {generation.id}: {len(tokens.output)} tokens are not what was noted")
        known = promised.get(generation.id)
        if known and (payload.answer, payload.request) != (known.answer, known.request):
            problems.append(f"generation {generation.id} is not what its client was answered")
    problems += [f"answered generation {key} is not in the spool" for key in promised if key not in seen]
    problems += [f"generation {key} is in the spool {n} times" for key, n in seen.items() if n > 1]
    return problems + damaged


def _events(spool: Spool, vault: Vault, promised: dict[str, Taken], index: Path) -> list[str]:
    problems: list[str] = []
    seen: Counter[str] = Counter()
    for _, stored, user, sealed in spool.events(0, EVERYTHING, on_damage=lambda _damage: None):
        seen[stored.id] += 1
        try:
            event = open_event(stored, user, sealed, vault)
        except RtrlError as error:
            problems.append(f"event {stored.id} cannot be read: {error.message}")
            continue
        known = promised.get(event.id)
        if known and (event.generation_id, event.data) != (known.generation_id, known.data):
            problems.append(f"event {event.id} is not what its client sent")
    waiting = _waiting(index)
    problems += [
        f"acknowledged event {key} is not in the spool"
        for key in promised
        if key not in seen and key not in waiting
    ]
    problems += [f"event {key} is in the spool {n} times" for key, n in seen.items() if n > 1]
    return problems


def _waiting(index: Path) -> set[str]:
    """Events whose generation never came: kept, and seen by no stage."""
    connection = sqlite3.connect(index, timeout=30)
    try:
        return {row[0] for row in connection.execute("SELECT id FROM events WHERE state = 'pending'")}
    finally:
        connection.close()
