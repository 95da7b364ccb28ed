"""Changing what the engine behind this gateway serves, without mixing two models.

Answers under way finish before, or go on and remember which checkpoint sampled which of their tokens.
Not here: how the engine takes weights (`stages/engine/update.py`), several engines (`rolling.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from stages.errors import DependencyDownError, RtrlError
from stages.gateway.ahead import Ahead, Stager
from stages.gateway.beside import Beside, DamagedError, HungError, turn
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.gate import DrainTimeoutError, OvertakenError
from stages.gateway.haste import Haste, alone
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.turns import UNPROVEN

Update = Callable[..., Awaitable[Any]]
Told = Callable[[str, Checkpoint, float], None]
BACK, SAME = "the previous weights are served", "the same weights are served"
LEAVING_S = 2.0  # for answers that are cut short, before other weights are loaded


@dataclass(frozen=True)
class Swapped:
    """A swap that worked. `verification` is what `update` returned; times in seconds.

    `restarting`: the engine was of no use, and is being started anew on the target; nothing is served
    until that is verified.
    """

    before: Checkpoint
    verification: Any
    drained_s: float
    seconds: float
    restarting: bool = False
    went_on: int = 0  # answers that were begun on the old weights, and go on with the new ones
    engines: list[dict[str, Any]] = field(default_factory=list)  # of several: which way each went, and why


RESTARTING = "restarting"


class Keeper(Protocol):
    """An engine whose answers can go on under other weights.

    Its `update` takes `keep`, and calls it when it has stood still and is about to go on.
    """

    def can_keep(self, path: Path) -> bool:
        """Whether it takes the weights in this folder without another process."""

    def sampled(self, generation: str) -> int | None:
        """Tokens that a generation had when the last update stopped it; None when it was complete."""


class Swapper:
    """Replaces the served weights. One swap at a time.

    Args:
        update: loads the weights in a folder into the engine, resets its caches and verifies what it
            serves; raises RtrlError when any of that fails.
        told: (attribute) called after each swap with "done" or an error's code, the target, and seconds.
        recover: called with the old weights' folder when even those could not be loaded again: starts
            the engine anew on them, and sets `ServedState.engine` when it is up.
        prepare: called with the weights' folder before requests are held: brings them to the engine.
        release: called when a swap is over, however it ended: what `prepare` started and nobody used goes.
        keeper: the engine, when answers under way go on under the new weights; None: they finish before.
        stager: gives the engine as it is now, where it can make weights ready before anybody asks for them.
        beside: the engine, where it has room for adapters; then no request waits.
    """

    def __init__(
        self,
        served: ServedState,
        update: Update,
        drain_timeout_s: float,
        recover: Update | None = None,
        prepare: Update | None = None,
        keeper: Keeper | None = None,
        stager: Callable[[], Stager] | None = None,
        beside: Beside | None = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._served = served
        self._update = update
        self._recover, self._prepare, self._release = recover, prepare, release
        self._keeper, self._keeping, self._went_on = keeper, False, 0
        self._beside = beside
        self._timeout = drain_timeout_s
        self.told: Told = lambda _outcome, _target, _seconds: None
        self._busy = asyncio.Lock()
        self._ahead = Ahead(stager)
        self._haste = Haste(served.gate)

    @property
    def served(self) -> ServedState:
        """What it changes."""
        return self._served

    @property
    def ready(self) -> bool:
        """Whether the engine can take weights now."""
        return self._served.engine == "ready"

    def serves(self, digest: str) -> bool:
        """Whether this is what the engine holds, or starts on."""
        return self._served.checkpoint.digest == digest

    def stage_ahead(self, target: Checkpoint) -> bool:
        """Begin to make weights ready that somebody is about to ask a swap for; whether it does.

        Only while nothing else is done. Any swap ends it: one to these weights goes on where it was. When
        none comes within a minute, their memory is free again.
        """
        idle = self.ready and not self._busy.locked() and self._beside is None  # an adapter needs none of it
        return idle and not self.serves(target.digest) and self._ahead.begin(target.path)

    async def swap(
        self,
        target: Checkpoint,
        *,
        drain_timeout_s: float | None = None,
        cut: bool = False,
        limit_s: float | None = None,
    ) -> Swapped:
        """Serve `target` from now on, also when it is served already (loaded and verified again).

        Generations in flight finish on the old weights, or with a `keeper` go on under the new ones;
        requests that come meanwhile wait. Goes on to its end when the caller is cancelled.

        Args:
            drain_timeout_s: patience with those in flight; None for the gateway's own.
            cut: end those that are not done then, in place of giving up.
            limit_s: an engine that is not ready, dead, or takes longer is left to whoever runs it, to be
                started anew on the target; None raises then.

        Raises:
            SwapError: it did not work.
            ApiError: 503, the engine was not ready.
        """
        return await asyncio.shield(self._noted(target, drain_timeout_s or self._timeout, cut, limit_s))

    def hurry(self, drain_timeout_s: float | None, limit_s: float | None) -> None:
        """Somebody who cannot wait comes next, with this patience."""
        self._haste.hurry(drain_timeout_s or self._timeout, limit_s)

    async def _noted(self, target: Checkpoint, timeout: float, cut: bool, limit_s: float | None) -> Swapped:
        began = time.monotonic()
        try:
            done = await self._swap(target, timeout, cut, limit_s)
        except (SwapError, ApiError) as error:
            self.told(error.code, target, time.monotonic() - began)
            if error.code == "drain_timeout":  # tried again soon, or forgotten
                self.stage_ahead(target)
            raise
        self.told("done", target, done.seconds)
        return done

    async def _swap(self, target: Checkpoint, timeout: float, cut: bool, limit_s: float | None) -> Swapped:
        began = time.monotonic()
        async with alone(self._busy, limit_s, partial(self.hurry, timeout, limit_s) if cut else None):
            self._haste.begun(cut=cut)
            await self._ahead.end()
            try:
                if (turned := await self._turned(target, limit_s, began)) is not None:
                    return turned
                if self._prepare is not None and self.ready:
                    await self._prepared(target, limit_s)
                self._haste.require()
                self._went_on, gate = 0, self._served.gate
                keeper = self._keeper if self.ready else None
                self._keeping = keeper is not None and keeper.can_keep(target.path)
                async with gate.held() if self._keeping else gate.exclusive(timeout, cut=cut):
                    drained, before = time.monotonic(), self._served.checkpoint
                    if limit_s is None:
                        self._served.require_ready()
                        verification = await self._replace(target, before)
                    else:
                        verification = await self._replace_or_restart(target, before, limit_s)
            except DrainTimeoutError as error:
                told = f"{error} ({self._served.turns.longest()}); {SAME}"
                raise SwapError("drain_timeout", told) from None
            except OvertakenError:
                raise SwapError("overtaken", f"a rollback came before; {SAME}") from None
            finally:
                self._release()
        seconds = time.monotonic() - began
        restarting = verification is RESTARTING
        return Swapped(before, verification, drained - began, seconds, restarting, self._went_on)

    async def _turned(self, target: Checkpoint, limit_s: float | None, began: float) -> Swapped | None:
        """Another adapter alone: nobody waits. None where it takes more, or an engine that answers."""
        before, beside = self._served.checkpoint, self._beside
        if beside is None or not self.ready or not await beside.takes(target.path):
            return None
        try:
            found = await turn(beside, self._served, target, limit_s, self._haste.require)
        except HungError:
            self._served.engine = "unknown"
            return None
        except DamagedError as error:
            self._served.engine = "unknown"
            async with self._served.gate.exclusive(self._timeout, cut=True):
                raise await self._failed(error.cause, before) from error
        except RtrlError as error:
            raise SwapError("swap_failed", f"{error.message}; {BACK}", error) from error
        return Swapped(before, found, 0.0, time.monotonic() - began)

    async def _prepared(self, target: Checkpoint, limit_s: float | None) -> None:
        """Raises SwapError; nothing is changed then."""
        assert self._prepare is not None
        try:
            async with self._haste.preparing(limit_s):
                await self._prepare(target.path)
        except TimeoutError:
            if limit_s is None:
                raise
        except RtrlError as error:
            raise SwapError("swap_failed", f"{error.message}; {SAME}", error) from error

    async def _replace_or_restart(self, target: Checkpoint, before: Checkpoint, limit_s: float) -> Any:
        """Alone at the gate: `_replace`, if the engine can; else only say what it is to be started on."""
        served = self._served
        if served.engine == "ready":
            served.engine = "unknown"
            try:
                async with asyncio.timeout(limit_s):
                    verification = await self._updated(target)
            except (TimeoutError, DependencyDownError):
                pass
            except BaseException as error:
                raise await self._failed(error, before) from error
            else:
                served.checkpoint, served.engine = target, "ready"
                return verification
        # still "starting", "down" or "unknown": the next that starts is on the target (`Supervisor`)
        served.checkpoint = target
        return RESTARTING

    async def _replace(self, target: Checkpoint, before: Checkpoint) -> Any:
        """Alone at the gate: load `target`; on failure go back."""
        self._served.engine = "unknown"
        try:
            async with self._haste.updating():
                verification = await self._updated(target)
        except BaseException as error:
            raise await self._failed(error, before) from error
        self._served.checkpoint = target
        self._served.engine = "ready"
        return verification

    async def _updated(self, target: Checkpoint) -> Any:
        """The engine with the target's weights. Answers that go on remember when."""
        if not self._keeping or self._keeper is None:
            return await self._update(target.path)
        turns, sampled = self._served.turns, self._keeper.sampled

        def goes_on() -> None:
            self._went_on = turns.turn(sampled)

        try:
            verification = await self._update(target.path, keep=goes_on)
        except BaseException:
            turns.settle(UNPROVEN)
            await asyncio.shield(self._served.gate.empty(LEAVING_S))
            raise
        turns.settle(target.digest)
        return verification

    async def _failed(self, error: BaseException, before: Checkpoint) -> SwapError:
        """The old weights again, and what to tell of it. Raises SwapError when they do not load either."""
        if isinstance(error, SwapError):
            return error
        cause = error if isinstance(error, RtrlError) else None
        what = cause.message if cause else type(error).__name__
        await self._go_back(before, what, cause)
        return SwapError("swap_failed", f"{what}; {BACK}", cause)

    async def _go_back(self, before: Checkpoint, what: str, cause: RtrlError | None) -> None:
        """The engine may hold anything now: load the old weights and verify them."""
        try:
            async with self._haste.updating():
                await self._update(before.path)
        except RtrlError as error:
            if self._recover is not None:
                await self._recover(before.path)
            raise SwapError(
                "engine_unknown", f"{what}; the previous weights did not load either: {error.message}", cause
            ) from error
        self._served.engine = "ready"
