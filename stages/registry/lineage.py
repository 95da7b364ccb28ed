"""The tree of checkpoints: ancestors and distances. A checkpoint's parent is `meta["parent"]`.

Rows of removed checkpoints stay, so the tree outlives gc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import func
from sqlmodel import Session, col, select

from stages.errors import InputMissingError, IntegrityError
from stages.registry.models import ArtifactRow

if TYPE_CHECKING:
    from stages.registry.store import Store

Parents = Mapping[str, str | None]  # of each checkpoint; None for a root


def parents(session: Session) -> dict[str, str | None]:
    """The whole tree, oldest checkpoint first: a line that turns five times a day has thousands of ancestors,
    and one query for all takes the time of a few."""
    query = (
        select(ArtifactRow.digest, func.json_extract(ArtifactRow.meta, "$.parent"))
        .where(ArtifactRow.kind == "checkpoint", col(ArtifactRow.state).in_(("committed", "tombstoned")))
        .order_by(col(ArtifactRow.id))
    )
    return {digest: parent for digest, parent in session.exec(query) if digest is not None}


def above(tree: Parents, digest: str) -> Iterator[str]:
    """Digests of a checkpoint's parents, nearest first, each once.

    Ends at a root, and at what this store never had: a root as far as it knows.
    """
    seen = {digest}
    parent = tree.get(digest)
    while parent is not None and parent not in seen:
        seen.add(parent)
        yield parent
        parent = tree.get(parent)


def _up(tree: Parents, digest: str) -> list[str]:
    if digest not in tree:
        raise InputMissingError(f"there is no checkpoint {digest}")
    found = [digest, *above(tree, digest)]
    if tree.get(found[-1]) in found:
        raise IntegrityError(f"checkpoint {found[-1]} is its own ancestor")
    return found[1:]


def ancestors(store: Store, digest: str) -> list[str]:
    """Digests of the parents of a checkpoint, nearest first; empty for a root.

    Raises:
        InputMissingError: (exit 5) the registry never had this checkpoint.
        IntegrityError: (exit 12) the parents go round in a circle.
    """
    with store.read() as session:
        return _up(parents(session), digest)


def children(store: Store, digest: str) -> list[str]:
    """Digests of the checkpoints that were made from a checkpoint, oldest first."""
    with store.read() as session:
        tree = parents(session)
    return [child for child, parent in tree.items() if parent == digest]


def lag(store: Store, sampler: str, parent: str) -> int | None:
    """Edges on the path between two checkpoints in the tree.

    0 for the same checkpoint, 1 for parent and child, 2 for siblings; None without a common ancestor.
    """
    if sampler == parent:
        return 0
    with store.read() as session:
        tree = parents(session)
    steps_up = {digest: steps for steps, digest in enumerate([parent, *_up(tree, parent)])}
    for steps, digest in enumerate([sampler, *_up(tree, sampler)]):
        if digest in steps_up:
            return steps + steps_up[digest]
    return None
