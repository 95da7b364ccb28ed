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


def push(store: Store, checkpoint: Artifact, depot: Depot, again: str = "") -> int:
    """Copy what the store lacks of the checkpoint's chain, bases first; the bytes copied.

    Args:
        again: digest of one of the chain that is copied over what is there.

    Raises:
        DependencyDownError (13): the store cannot be reached. What was copied stays, and is of use.
        IntegrityError (12): a base is not in the registry.
    """
    links = chain(store, checkpoint)
    missing = [each for each in links if each.digest == again or not depot.has(each.digest)]
    return sum(depot.put(each.digest, each.path, again=each.digest == again) for each in reversed(missing))


def offering(store: Store, url: str) -> Callable[[str, str], int]:
    """What sees that a checkpoint (digest) is in the store at `url`, and of its chain that one (digest) which
    is lost or damaged there; UsageError (2) without a `url`."""

    def offer(digest: str, lost: str) -> int:
        if not url:
            raise UsageError("a helper fetches from deploy.store, which is not set", hint="set deploy.store")
        return push(store, store.resolve(digest), Depot(url), lost)

    return offer
