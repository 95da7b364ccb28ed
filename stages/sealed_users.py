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

from stages import schemas
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
            found |= spool.oldest().keys()
    if deep:
        found |= Inbox(workspace.inbox_dir).users()
        for artifact in store.all_of("interactions"):
            for part in artifact.path.glob("part-*"):
                found |= _of_generations(part / schemas.GENERATIONS_FILE)
    return found


def samples(spool_dir: Path) -> Iterator[Sample]:
    """Of each user the oldest generation in the spool, if it reads."""
    if not spool_dir.is_dir():
        return
    with closing(Spool.open(spool_dir)) as spool:
        for user, generation_id in spool.oldest().items():
            with suppress(RtrlError, OSError):  # damaged, or deleted since
                yield user, spool.record(generation_id)[1], generation_aad(generation_id)


def _of_generations(path: Path) -> set[str]:
    """Whose generations a file has, by one column. All of them are sealed: no other gets into an artifact."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_table(path, columns=["user"])["user"].unique().to_pylist())
    except (OSError, pa.ArrowException):
        return set()
