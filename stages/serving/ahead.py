"""What `rtrl deploy` is about to serve, made ready in the engine while the command still starts.

A word is enough: nothing is served by it, and a checkpoint that the gate would not let through is left alone.
Not here: how it is made ready (`stages/gateway/swapper.py`), who gives the word (`stages/target/light.py`).
"""

from __future__ import annotations

import asyncio

from stages.deploy.choose import default_candidate, objection, report_for
from stages.errors import RtrlError
from stages.gateway.rolling import Rolling
from stages.gateway.served import Checkpoint
from stages.registry.store import Store
from stages.target.taken_back import refuse_taken_back


class StagedAhead:
    """Of the main line."""

    def __init__(self, store: Store, line: str, swapper: Rolling) -> None:
        self._store, self._line, self._swapper = store, line, swapper
        self._finding: asyncio.Task[None] | None = None

    def ask(self, ref: str, override: bool) -> None:
        """Make the checkpoint (default what a plain `rtrl deploy` takes) ready, unless there is a reason not
        to. Returns at once; one at a time."""
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._ask(ref, override))

    async def _ask(self, ref: str, override: bool) -> None:
        try:
            found = await asyncio.to_thread(self._find, ref, override)
        except RtrlError:
            return  # the command says what it is
        if found is not None:
            self._swapper.stage_ahead(found)

    def _find(self, ref: str, override: bool) -> Checkpoint | None:
        store, line = self._store, self._line
        live = store.alias(line, "live")
        wanted = store.resolve(ref, line) if ref else default_candidate(store, line, live)
        if wanted.kind != "checkpoint":
            return None
        if objection(wanted, live, report_for(store, line, wanted, live)) and not override:
            return None
        if not ref and not override:
            refuse_taken_back(store, line, wanted, asked=True)
        return Checkpoint(wanted.digest, store.checkpoint_folder(wanted))
