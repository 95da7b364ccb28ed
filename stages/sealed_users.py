"""For whom something is sealed in a workspace, and a piece of it. For `rtrl verify`; opens nothing.

A key is durable before anything is sealed under it, and its row stays when it is destroyed: look here
first and at the vault after, and whoever is not there was never there when nothing is wrong.
Not for: whether the keys open (`stages/vault_check.py`), one user's data (`stages/forget`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stages import schemas, tables
from stages.errors import RtrlError
from stages.inbox.reader import Inbox
from stages.spool.codec import generation_aad
from stages.spool.reader import Spool
from stages.vault_check import Sample

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace


def sealed_users(workspace: Workspace, store: Store, *, deep: bool) -> set[str]:
    """Users for whom something is sealed in the spool; with `deep` also in received telemetry and artifacts.

    Files that cannot be read are left out: `rtrl verify` names them by itself.
    """
    found: set[str] = set()
    if workspace.spool_dir.is_dir():
        with closing(Spool.open(workspace.spool_dir)) as spool:
            found |= spool.users()
    if deep:
        found |= Inbox(workspace.inbox_dir).users()
        for path in _collected(store):
            found |= set(_users_of(path))
    return found


def samples(workspace: Workspace, store: Store, *, everywhere: bool) -> Iterator[Sample]:
    """Of each user the oldest generation in the spool and the newest, if they read.

    Keys that are older than the data lack the newest: who was forgotten and came back since has a key of
    which they know nothing. With `everywhere` also of received telemetry and of artifacts, which are read
    through for it: they outlive the spool.
    """
    if workspace.spool_dir.is_dir():
        with closing(Spool.open(workspace.spool_dir)) as spool:
            for generation_id in spool.ends():
                with suppress(RtrlError, OSError):  # damaged, or deleted since
                    generation, sealed = spool.record(generation_id)
                    yield generation.user, sealed, generation_aad(generation_id)
    if everywhere:
        yield from Inbox(workspace.inbox_dir).ends()
        yield from _of_artifacts(store)


def _collected(store: Store) -> list[Path]:
    """Files of generations in artifacts, oldest first. All in them is sealed: no other gets into one."""
    artifacts = sorted(store.all_of("interactions"), key=lambda artifact: artifact.version)
    return [part / schemas.GENERATIONS_FILE for one in artifacts for part in sorted(one.path.glob("part-*"))]


def _of_artifacts(store: Store) -> Iterator[Sample]:
    """Of each user the oldest generation in artifacts and the newest."""
    oldest: dict[str, tuple[Path, int]] = {}
    newest: dict[str, tuple[Path, int]] = {}
    for path in _collected(store):
        for row, user in enumerate(_users_of(path)):
            oldest.setdefault(user, (path, row))
            newest[user] = path, row
    wanted: dict[Path, set[int]] = {}
    for path, row in (*oldest.values(), *newest.values()):
        wanted.setdefault(path, set()).add(row)
    for path, rows in wanted.items():
        with suppress(RtrlError):
            yield from _rows(path, rows)


def _rows(path: Path, wanted: set[int]) -> Iterator[Sample]:
    columns, at = ["id", "user", "sealed"], 0
    for batch in tables.batches(path, schemas.GENERATIONS, columns, rows=1024):
        here = sorted(row - at for row in wanted if at <= row < at + batch.num_rows)
        for found in batch.take(here).to_pylist() if here else ():
            yield found["user"], found["sealed"], generation_aad(found["id"])
        at += batch.num_rows


def _users_of(path: Path) -> list[str]:
    """Whose the generations of a file are, in their order, by one column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        users: list[str] = pq.read_table(path, columns=["user"])["user"].to_pylist()
    except (OSError, pa.ArrowException):
        return []
    return users
