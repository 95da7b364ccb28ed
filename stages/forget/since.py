"""Whose share of an artifact was made unreadable after it was made. Not for: forgetting (`forget.py`).

Forgetting destroys every key that a user has by then: all that an artifact made before holds of them is
sealed for ever, also when they came back since and have a new key. What came first is told by the order of
the registry's events, as a clock may have been set; for whoever has none (`forget` was killed), by the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import String, cast, func
from sqlmodel import col, select

from stages.errors import InputMissingError
from stages.forget.forget import ENTITY, FORGOTTEN
from stages.registry.models import ArtifactRow, EventRow
from stages.vault import Vault

if TYPE_CHECKING:
    from stages.registry.store import Store


class Since:
    """Who was forgotten, as the registry and the vault in `keys_dir` know it now."""

    def __init__(self, store: Store, keys_dir: Path) -> None:
        self._store, self._keys_dir = store, keys_dir
        query = (
            select(EventRow.entity_id, func.max(EventRow.seq))
            .where(EventRow.entity == ENTITY, EventRow.to_state == FORGOTTEN)
            .group_by(EventRow.entity_id)
        )
        with store.read() as session:
            self._recorded = {user: seq or 0 for user, seq in session.exec(query)}

    def lost(self, users: Iterable[str], artifacts: Sequence[str]) -> set[str]:
        """Those of the users who were forgotten after the last of the artifacts (digests) was made."""
        names = set(users)
        recorded = names & self._recorded.keys()
        by_clock = self._by_clock(names - recorded)
        if not recorded and not by_clock:
            return set()
        made, at = self._made(artifacts)
        told = {user for user in recorded if self._recorded[user] > made}
        return told | {user for user, when in by_clock.items() if when >= at}

    def _made(self, artifacts: Sequence[str]) -> tuple[int, int]:
        """Number of the event with which the last of them was there, and when that was (ms)."""
        query = (
            select(func.min(EventRow.seq), func.min(ArtifactRow.created_at))
            .join(ArtifactRow, col(EventRow.entity_id) == cast(ArtifactRow.id, String))
            .where(EventRow.entity == "artifact", EventRow.to_state == "committed")
            .where(col(ArtifactRow.digest).in_(artifacts))
            .group_by(col(ArtifactRow.digest))
        )
        with self._store.read() as session:
            found = session.exec(query).all()
        times = [int(1000 * datetime.fromisoformat(at).timestamp()) for _, at in found]
        return max((seq for seq, _ in found if seq is not None), default=0), max(times, default=0)

    def _by_clock(self, users: set[str]) -> dict[str, int]:
        """When (ms since the epoch) each was last forgotten; none of who never was, or without keys."""
        if not users:
            return {}
        try:
            vault = Vault.open(self._keys_dir)
        except InputMissingError:
            return {}
        with closing(vault):
            return {user: at for user in users if (at := vault.forgotten(user))}
