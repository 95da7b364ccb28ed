"""The engine of a line's holdback: a small share of the users stays on the anchor checkpoint for good.

Follows settings and registry: `ab.holdback` says how many users, the alias `anchor` on what. While anchor
and live are the same checkpoint no engine is needed. Who is held back is on record (`registry/holdbacks.py`)
before the first of them is answered, and no canary gets them from then on, whether there is an engine or
not. Not for: what it shows (`stages/ab/holdback.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from stages.gateway.arms import Arms, Holdback
from stages.gateway.served import Checkpoint
from stages.records import HOLDBACK
from stages.registry.holdbacks import close_holdback, holdback_of, open_holdback
from stages.registry.store import Store
from stages.serving.extra import ExtraEngine

BY = "rtrl serve"


class Starter(Protocol):
    """Starts an engine on a checkpoint, for an arm of a line."""

    async def __call__(self, checkpoint: Checkpoint, *, line: str, arm: str) -> ExtraEngine: ...


def on_record(store: Store, line: str, share: float) -> Holdback | None:
    """Who is held back while there is no engine: those on record, whom `rtrl ab` leaves out, also where the
    settings have another `share` since. None where nobody is."""
    last = holdback_of(store, line) if share else None
    return Holdback(None, last.salt, last.share) if last is not None and last.open else None


class HoldbackEngine:
    """Of one line's arms.

    Args:
        share: of the users, 0 for none.
        start: `ExtraEngine.start` with all but the checkpoint, the line and the arm.
        changed: called when there is an engine, or none any more.
        last_seq: makes what was answered durable; the spool's last record.
    """

    def __init__(
        self,
        store: Store,
        arms: Arms,
        share: float,
        start: Starter,
        last_seq: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._arms = arms
        self._share = share
        self._start = start
        self._last_seq = last_seq
        self._changed = changed
        self._busy = asyncio.Lock()
        self._ended = False
        self.engine: ExtraEngine | None = None

    async def follow(self, drain_s: float) -> None:
        """Bring the engine to what settings and registry say. Raises RtrlError when it does not start."""
        async with self._busy:
            if not self._ended:
                await self._follow(drain_s)

    async def _follow(self, drain_s: float) -> None:
        line = self._arms.live.served.line
        wanted = await asyncio.to_thread(self._wanted, line)
        holds = await asyncio.to_thread(on_record, self._store, line, self._share)
        serving = self.engine.arm.served.checkpoint.digest if self.engine else ""
        if (wanted.digest if wanted else "") != serving:
            await self._close(drain_s, holds)
        if self.engine is None:
            self._arms.holdback = holds
        if wanted is None or self.engine is not None:
            return
        engine = await self._start(wanted, line=line, arm=HOLDBACK)
        try:
            last = await asyncio.to_thread(self._last_seq)
            held = await asyncio.to_thread(
                lambda: open_holdback(self._store, line, wanted.digest, self._share, last, by=BY)
            )
        except BaseException:
            await engine.stop(0.1)
            raise
        self.engine = engine
        self._arms.holdback = Holdback(engine.arm, held.salt, held.share)
        self._changed()

    def _wanted(self, line: str) -> Checkpoint | None:
        if not self._share:
            close_holdback(self._store, line, by=BY)
            return None
        anchor, live = self._store.alias(line, "anchor"), self._store.alias(line, "live")
        if anchor is None or live is None or anchor.digest == live.digest:
            return None
        return Checkpoint(anchor.digest, self._store.checkpoint_folder(anchor))

    async def end(self, drain_s: float) -> None:
        """Its users to the live arm, for good; the record stays."""
        async with self._busy:
            self._ended = True
            await self._close(drain_s)

    async def _close(self, drain_s: float, holds: Holdback | None = None) -> None:
        """Its users to the live arm at once; then stop it."""
        self._arms.holdback = holds
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.stop(drain_s)
            self._changed()
