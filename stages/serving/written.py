"""What a gateway writes into, opened for `rtrl serve` and closed at its end. Not for: the writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stages.collect.older import number_on
from stages.gateway.writers import open_inbox, open_spool
from stages.inbox.writer import InboxWriter
from stages.registry.store import Store
from stages.serving.supervisor import Say
from stages.spool import SpoolWriter
from stages.vault import Vault
from stages.workspace import Workspace


@contextmanager
def written(
    workspace: Workspace, store: Store, vault: Vault, say: Say
) -> Iterator[tuple[SpoolWriter, InboxWriter]]:
    """The spool, which gives out no number a second time, and what takes others' telemetry."""
    config = workspace.settings.gateway
    with ExitStack() as open_now:
        spool = open_spool(workspace.spool_dir, vault, config)
        open_now.callback(spool.close)
        number_on(spool, store, say)
        inbox = open_inbox(workspace.inbox_dir, vault, config)
        open_now.callback(inbox.close)
        yield spool, inbox
