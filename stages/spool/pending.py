"""Events that came before their generation: who waits for whom, how many, since when, under which key."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from stages.errors import DependencyDownError
from stages.spool.index import EventRow
from stages.vault import Vault

_PATIENCE_S = 1.0
PENDING_PREFIX = "\x1fpending/"  # clients name their users in printable characters only


class Pending:
    """Index rows of waiting events, by generation."""

    def __init__(self, rows: Iterable[EventRow]) -> None:
        self._rows: dict[str, list[EventRow]] = {}
        self._by_key: Counter[str] = Counter()
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return self._by_key.total()

    def __contains__(self, generation_id: str) -> bool:
        return generation_id in self._rows

    def of_key(self, key_id: str) -> int:
        """How many events of this key wait."""
        return self._by_key[key_id]

    def generations(self) -> list[str]:
        """Generations waited for."""
        return list(self._rows)

    def add(self, row: EventRow) -> None:
        """One more waits."""
        self._rows.setdefault(row.generation_id, []).append(row)
        self._by_key[row.key_id] += 1

    def each(self, generation_id: str) -> Iterator[EventRow]:
        """The generation is there: take out one after the other, what fails waits on."""
        rows = self._rows.get(generation_id, [])
        while rows:
            yield rows[0]
            self._by_key[rows.pop(0).key_id] -= 1
        self._rows.pop(generation_id, None)

    def pop(self, generation_id: str) -> list[EventRow]:
        """Take out all that waited for a generation."""
        rows = self._rows.pop(generation_id, [])
        self._by_key.subtract(row.key_id for row in rows)
        return rows

    def pop_older(self, wall: int) -> list[EventRow]:
        """Take out everything of generations whose newest waiting event came before `wall`."""
        late = [g for g, rows in self._rows.items() if max(row.wall for row in rows) < wall]
        return [row for generation_id in late for row in self.pop(generation_id)]


def pending_user(generation_id: str) -> str:
    """Under whose key the data of an event waits when nobody knows yet whose generation it is for."""
    return PENDING_PREFIX + generation_id


def forget_keys(vault: Vault, users: Sequence[str]) -> None:
    """Destroy the keys of events that no longer wait. Only after what replaces them survives a power cut.

    On a full disk it is left for the next writer (`left_over`). The disk's thread calls it, for which others
    wait: whoever reads in the vault's log all the time is left to whoever forgets a user next, and so are
    traces within the database.
    """
    with contextlib.suppress(DependencyDownError, sqlite3.OperationalError):
        vault.forget(*users, patience_s=_PATIENCE_S, rewrite=False)


def left_over(vault: Vault, pending: Pending) -> list[str]:
    """Waiting keys (their `pending_user`) under which nothing waits any more: their writer was killed."""
    named = vault.users(PENDING_PREFIX)
    return [user for user in named if user.removeprefix(PENDING_PREFIX) not in pending]
