"""Under which names people are recorded, which keys they had, and which names are like the one given.

Names are compared exactly when it comes to forgetting; likeness serves to tell a person of others.
Not for: what is held under a name (`holdings.py`).
"""

from __future__ import annotations

import difflib
import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.errors import InputMissingError
from stages.gateway.key_file import ApiKey
from stages.gateway.keys import ApiKeys
from stages.spool.index import FILE as SPOOL_INDEX
from stages.spool.pending import PENDING_PREFIX, pending_user
from stages.vault import DATABASE_FILE

if TYPE_CHECKING:
    from stages.workspace import Workspace

MOST_ALIKE = 10


class UnknownUserError(InputMissingError):
    """Nothing was ever recorded or sealed under this name."""

    kind = "unknown_user"


@dataclass(frozen=True)
class KeyHistory:
    """One key of a user: made when, destroyed when ("" while it lives). Times are ISO 8601, UTC."""

    epoch: int
    made: str
    forgotten: str


def known_names(workspace: Workspace) -> set[str]:
    """Every user the vault or the spool's index has heard of, forgotten ones too."""
    keys, index = workspace.keys_dir / DATABASE_FILE, workspace.spool_dir / SPOOL_INDEX
    found = {row[0] for row in _rows(keys, "SELECT DISTINCT user FROM user_keys")}
    found |= {row[0] for row in _rows(index, "SELECT DISTINCT user FROM generations")}
    return {name for name in found if not name.startswith(PENDING_PREFIX)}


def history(workspace: Workspace, user: str) -> list[KeyHistory]:
    """The user's keys in order."""
    query = "SELECT epoch, created, forgotten FROM user_keys WHERE user = ? ORDER BY epoch"
    rows = _rows(workspace.keys_dir / DATABASE_FILE, query, (user,))
    return [KeyHistory(epoch, _iso(made), _iso(gone)) for epoch, made, gone in rows]


def living_epochs(workspace: Workspace) -> dict[str, int]:
    """Which key each user has now."""
    query = "SELECT user, epoch FROM user_keys WHERE forgotten IS NULL"
    return dict(_rows(workspace.keys_dir / DATABASE_FILE, query))


def alike(workspace: Workspace, user: str, names: set[str]) -> list[str]:
    """Other names that the same person may have, best first: as far as spelling and API keys tell."""
    wanted = _bare(user)
    spelled = [
        name
        for name in sorted(names - {user})
        if wanted in _bare(name) or (len(name) >= 3 and _bare(name) in wanted)
    ]
    close = difflib.get_close_matches(user, sorted(names - {user} - set(spelled)), n=3, cutoff=0.8)
    keys = {key.id for key in _api_keys(workspace) if _bare(key.name) == wanted}
    return [*sorted(keys & names - {user}), *(n for n in spelled if n not in keys), *close][:MOST_ALIKE]


def waiting(workspace: Workspace, user: str) -> tuple[list[str], int]:
    """Events that wait for a generation nobody recorded yet: whose they are, only the API key tells.

    Returns:
        The vault's names of those that are this user's for sure (the generation is the user's, or the API
        key is not shared and no one else is known to have come through it); and how many more waiting
        events came through keys that the user may share with others. The spool forgets who came long ago.
    """
    index = workspace.spool_dir / SPOOL_INDEX
    owner = "SELECT DISTINCT user FROM generations WHERE key_id = ?"
    mine = {row[0] for row in _rows(index, "SELECT DISTINCT key_id FROM generations WHERE user = ?", (user,))}
    mine.add(user)
    shared_keys = {key.id for key in _api_keys(workspace) if key.shared}
    alone = {key for key in mine - shared_keys if {row[0] for row in _rows(index, owner, (key,))} <= {user}}
    certain: set[str] = set()
    shared = 0
    query = "SELECT key_id, generation_id FROM events WHERE state = 'pending'"
    for key, generation in _rows(index, query):
        if key in alone:
            certain.add(pending_user(generation))
        else:
            shared += key in mine
    named = "SELECT user FROM user_keys WHERE user >= ? AND user < ? AND forgotten IS NULL"
    left = _rows(workspace.keys_dir / DATABASE_FILE, named, (PENDING_PREFIX, PENDING_PREFIX + "\U0010ffff"))
    of = "SELECT 1 FROM generations WHERE id = ? AND user = ?"
    keys = {row[0] for row in left}
    certain |= {key for key in keys if _rows(index, of, (key.removeprefix(PENDING_PREFIX), user))}
    return sorted(certain & keys), shared


def recorded(workspace: Workspace, user: str) -> int:
    """How many generations the spool's index has of the user, no-train ones too."""
    query = "SELECT count(*) FROM generations WHERE user = ?"
    rows = _rows(workspace.spool_dir / SPOOL_INDEX, query, (user,))
    return int(rows[0][0]) if rows else 0


def _bare(name: str) -> str:
    """Without case, accents and forms: some machines write an é as one character, others as two."""
    letters = unicodedata.normalize("NFKD", name).casefold().strip()
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _api_keys(workspace: Workspace) -> list[ApiKey]:
    """The gateway's keys; a workspace that never served has none."""
    try:
        return ApiKeys.listed(workspace.keys_dir)
    except InputMissingError:
        return []


def _rows(path: Path, query: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as db:
        return db.execute(query, arguments).fetchall()


def _iso(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
