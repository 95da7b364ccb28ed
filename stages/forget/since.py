"""Whose share of an artifact was made unreadable after it was made. Not for: forgetting (`forget.py`).

Forgetting destroys every key that a user has by then: all that an artifact made before holds of them is
sealed for ever, also when they came back since and have a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from stages.errors import InputMissingError
from stages.vault import Vault


def times_of(keys_dir: Path, users: Iterable[str]) -> dict[str, int]:
    """When (ms since the epoch) each of them was last forgotten; none of who never was, or without keys."""
    try:
        vault = Vault.open(keys_dir)
    except InputMissingError:
        return {}
    try:
        return {user: at for user in users if (at := vault.forgotten(user))}
    finally:
        vault.close()


def lost(times: Mapping[str, int], made: str) -> set[str]:
    """Those of whom an artifact made then (ISO 8601) holds nothing that opens."""
    at = int(1000 * datetime.fromisoformat(made).timestamp())
    return {user for user, forgotten in times.items() if forgotten >= at}
