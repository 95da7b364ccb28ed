"""The tree of checkpoints: ancestors and distances. A checkpoint's parent is `meta["parent"]`.

Rows of removed checkpoints stay, so the tree outlives gc.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlmodel import col, select

from stages.errors import InputMissingError, IntegrityError
from stages.registry.models import ArtifactRow

if TYPE_CHECKING:
    from stages.registry.store import Store


def ancestors(store: Store, digest: str) -> list[str]:
    """Digests of the parents of a checkpoint, nearest first; empty for a root.

    Raises:
        InputMissingError: (exit 5) the registry never had this checkpoint.
        IntegrityError: (exit 12) the parents go round in a circle.
    """
    chain: list[str] = []
    with store.read() as session:
        current: str | None = digest
        while current is not None:
            meta = session.exec(
                select(ArtifactRow.meta).where(
                    ArtifactRow.digest == current, col(ArtifactRow.state).in_(("committed", "tombstoned"))
                )
            ).first()
            if meta is None:
                if current == digest:
                    raise InputMissingError(f"there is no checkpoint {digest}")
                break  # the parent came from elsewhere: a root as far as this store knows
            current = json.loads(meta).get("parent")
            if current in chain or current == digest:
                raise IntegrityError(f"checkpoint {digest} is its own ancestor")
            if current is not None:
                chain.append(current)
    return chain


def children(store: Store, digest: str) -> list[str]:
    """Digests of the checkpoints that were made from a checkpoint, oldest first."""
    with store.read() as session:
        rows = session.exec(
            select(ArtifactRow.digest, ArtifactRow.meta)
            .where(ArtifactRow.kind == "checkpoint", ArtifactRow.state == "committed")
            .order_by(col(ArtifactRow.id))
        ).all()
    return [found for found, meta in rows if found and json.loads(meta).get("parent") == digest]


def lag(store: Store, sampler: str, parent: str) -> int | None:
    """Edges on the path between two checkpoints in the tree.

    0 for the same checkpoint, 1 for parent and child, 2 for siblings; None without a common ancestor.
    """
    if sampler == parent:
        return 0
    up_from_sampler = [sampler, *ancestors(store, sampler)]
    up_from_parent = {digest: i for i, digest in enumerate([parent, *ancestors(store, parent)])}
    for steps, digest in enumerate(up_from_sampler):
        if digest in up_from_parent:
            return steps + up_from_parent[digest]
    return None
