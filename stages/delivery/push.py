"""A checkpoint and what it is a delta to, from the registry into the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stages.delivery.depot import Depot
from stages.errors import UsageError
from stages.registry.chain import chain

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact


def push(store: Store, checkpoint: Artifact, depot: Depot) -> int:
    """Copy what the store lacks of the checkpoint's chain, bases first; the bytes copied.

    Raises:
        DependencyDownError (13): the store cannot be reached. What was copied stays, and is of use.
        IntegrityError (12): a base is not in the registry.
    """
    missing = []
    for artifact in chain(store, checkpoint):
        if depot.has(artifact.digest):
            break
        missing.append(artifact)
    return sum(depot.put(artifact.digest, artifact.path) for artifact in reversed(missing))


def offering(store: Store, url: str) -> Callable[[str], int]:
    """What sees that a checkpoint (digest) is in the store at `url`; UsageError (2) without a `url`."""

    def offer(digest: str) -> int:
        if not url:
            raise UsageError("a helper fetches from deploy.store, which is not set", hint="set deploy.store")
        return push(store, store.resolve(digest), Depot(url))

    return offer
