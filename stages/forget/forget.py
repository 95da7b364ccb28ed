"""Destroys a user's keys, puts that on record, and lists what held the user's data.

    1. the keys of the user's waiting events, and the user's own      keys/vault.db, one transaction
    2. the vault's database is written anew, and its log emptied       no page with a key is left
    3. an event `user ... forgotten` in the registry                   who, when, why; no content

What killed exports left behind is removed on the way; whole ones are listed, they hold the data unsealed.

A kill in between leaves a step undone that the next call does: each looks at what there is, not at how
far an earlier call came. Not for: the vault (`stages/vault.py`), what the lists say (`holdings.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from cursorbench.redaction import redact
from stages.forget import holdings, names, sources
from stages.forget.names import KeyHistory, UnknownUserError
from stages.inbox.reader import Inbox
from stages.registry import exports
from stages.registry.models import EventRow
from stages.registry.states import record
from stages.vault import Vault

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

ENTITY, FORGOTTEN = "user", "forgotten"


@dataclass(frozen=True)
class Forgotten:
    """What was done, or with `dry_run` would be, and what is known of the user.

    Attributes:
        destroyed: keys destroyed by this call; `waiting`: of these, keys of events that waited.
        waiting_shared: waiting events that came through an API key others use too: whose, nobody knows.
        before: keys that had been destroyed before this call.
        alike: other names, not forgotten.
        received_batches: telemetry of other systems that is sealed for the user, in `received/`.
        sources: session logs that the user's data came from, and other names of the same sessions.
        restored: users whose destroyed keys live again, because keys/vault.db was put back.
    """

    user: str
    dry_run: bool
    destroyed: int
    waiting: int
    waiting_shared: int
    before: tuple[KeyHistory, ...]
    recorded: bool
    spool_generations: int
    received_batches: int
    alike: tuple[str, ...]
    restored: tuple[str, ...]
    holdings: holdings.Holdings
    sources: sources.Sources

    @property
    def noop(self) -> bool:
        """Whether there was nothing to do."""
        return not self.destroyed and not self.recorded

    def metrics(self) -> dict[str, Any]:
        """For the envelope of `--json`."""
        return asdict(self)


def forget(
    workspace: Workspace, store: Store, user: str, *, by: str, reason: str = "", dry_run: bool = False
) -> Forgotten:
    """Make everything sealed for `user` unreadable, in the workspace and in every copy of its data.

    Args:
        user: the exact name; others that begin alike are left alone.
        reason: kept with the event, redacted.

    Raises:
        UnknownUserError: (exit 5) no such name.
        InputMissingError: (exit 5) the workspace has no vault.
        DependencyDownError: (exit 13) the key is destroyed but its traces are not yet: again.
    """
    if not dry_run:
        exports.sweep(store, by=by)
    known, vault = names.known_names(workspace), Vault.open(workspace.keys_dir)
    try:
        held = holdings.find(store, user)
        others = names.alike(workspace, user, known)
        if user not in known and not held.artifacts:
            raise _unknown(user, others)
        keys = names.history(workspace, user)
        pending, shared = names.waiting(workspace, user)
        living = sum(not key.forgotten for key in keys) + len(pending)
        if not dry_run:
            living = vault.forget(*pending, user)
    finally:
        vault.close()
    gone = {key.epoch for key in names.history(workspace, user) if key.forgotten}
    missing = gone - _on_record(store).get(user, set())
    if missing and not dry_run:
        data = {"epochs": sorted(missing), "keys": len(missing) + len(pending), "reason": redact(reason).text}
        with store.write("forget") as session:
            record(session, ENTITY, user, "known", FORGOTTEN, by=by, data=data)
    return Forgotten(
        user=user,
        dry_run=dry_run,
        destroyed=living,
        waiting=len(pending),
        waiting_shared=shared,
        before=tuple(key for key in keys if key.forgotten),
        recorded=bool(missing) and not dry_run,
        spool_generations=names.recorded(workspace, user),
        received_batches=Inbox(workspace.inbox_dir).batches_of(user),
        alike=tuple(others),
        restored=restored(workspace, store),
        holdings=held,
        sources=sources.of_user(store, user, names.living_epochs(workspace)),
    )


def restored(workspace: Workspace, store: Store) -> tuple[str, ...]:
    """Users on record as forgotten whose destroyed key lives: an older keys/vault.db was put back."""
    living = names.living_epochs(workspace)
    gone = _on_record(store)
    return tuple(sorted(user for user, epochs in gone.items() if living.get(user) in epochs))


def _on_record(store: Store) -> dict[str, set[int]]:
    """Which keys (epochs) of whom the registry's events say were destroyed."""
    query = select(EventRow).where(EventRow.entity == ENTITY, EventRow.to_state == FORGOTTEN)
    found: dict[str, set[int]] = {}
    with store.read() as session:
        for row in session.exec(query.order_by(col(EventRow.seq))):
            found.setdefault(row.entity_id, set()).update(json.loads(row.data)["epochs"])
    return found


def _unknown(user: str, others: list[str]) -> UnknownUserError:
    if others:
        hint = "names are taken exactly; did you mean " + " or ".join(repr(name) for name in others) + "?"
    else:
        hint = "names are taken exactly, as clients gave them; who gave none has the id of the API key"
    return UnknownUserError(f"no user {user!r} was ever recorded", hint=hint)
