"""Session logs that a user's data came from, and other names under which the same sessions are held.

Forgetting reaches neither: logs are somebody's files, and names are taken exactly. Reads columns that are
not sealed. Not for: what is held under the name itself (`holdings.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.errors import IntegrityError

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact

_COLUMNS = ["user", "session"]


@dataclass(frozen=True)
class Sources:
    """Paths as `rtrl collect` was given them; other names, not forgotten, that have the same sessions."""

    logs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def of_user(store: Store, user: str, living: Collection[str]) -> Sources:
    """Look through all interactions that were made of logs and are readable. `living`: who has a key."""
    logs: set[str] = set()
    sessions: set[str] = set()
    read = list(collected(store))
    for artifact, table in read:
        mine = table.filter(pc.equal(table["user"], user))
        if len(mine):
            sessions |= set(mine["session"].to_pylist())
            logs |= set(artifact.meta["source"].get("paths") or ())
    wanted = pa.array(sorted(sessions), pa.string())
    names: set[str] = set()
    for _, table in read if sessions else ():
        names |= set(table.filter(pc.is_in(table["session"], value_set=wanted))["user"].to_pylist())
    return Sources(tuple(sorted(logs)), tuple(sorted((names - {user}).intersection(living))))


def collected(store: Store) -> Iterator[tuple[Artifact, pa.Table]]:
    """Interactions that were made of logs, each with the user and the session of its episodes."""
    for artifact in store.all_of("interactions"):
        if not artifact.meta.get("source"):
            continue
        try:
            read = [
                tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES, _COLUMNS)
                for part in tables.parts(artifact.path)
            ]
        except (OSError, IntegrityError, ValueError):
            continue  # `rtrl forget` and `rtrl verify` tell of it
        if read:
            yield artifact, pa.concat_tables(read).select(_COLUMNS)
