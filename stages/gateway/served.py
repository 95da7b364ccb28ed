"""What the engine behind this gateway serves, and changing it without mixing two models.

`ServedState` is set by whoever runs the engine (`stages/serve.py`) and by `Swapper`. Every generation
takes its checkpoint from here while it holds the gate, so a token is never attributed to weights that
did not sample it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stages.errors import DependencyDownError, RtrlError
from stages.gateway.errors import ApiError, unavailable
from stages.gateway.gate import DrainTimeoutError, Gate
from stages.gateway.health import Health

EngineState = Literal["starting", "ready", "down", "unknown"]
Update = Callable[[Path], Awaitable[Any]]
Told = Callable[[str, "Checkpoint", float], None]


@dataclass(frozen=True)
class Checkpoint:
    """One set of weights: artifact digest, folder, and the deployment that put it there."""

    digest: str
    path: Path
    deployment: str = ""


@dataclass
class ServedState:
    """The one line served here.

    Attributes:
        line: the checkpoint line.
        model: the name clients ask for.
        checkpoint: what the engine holds while it is "ready".
        engine: "unknown" while weights change, and after a failed swap whose way back failed too:
            nothing is served until the engine was started again.
        arm: recorded with every generation; "live" outside of a canary.
        name: of the engine, where the arm has several.
    """

    line: str
    model: str
    checkpoint: Checkpoint
    engine: EngineState = "starting"
    arm: str = "live"
    gate: Gate = field(default_factory=Gate)
    health: Health = field(default_factory=Health)
    name: str = ""

    @property
    def label(self) -> str:
        """The arm, and where it has several engines which one."""
        return f"{self.arm}/{self.name}" if self.name else self.arm

    def require_ready(self) -> None:
        """Raises ApiError 503 unless the engine is up and holds what `checkpoint` says."""
        if self.engine == "starting":
            raise unavailable("engine_starting", "the engine is starting", retry_after=5)
        if self.engine == "down":
            raise unavailable("engine_down", "the engine is down")
        if self.engine == "unknown":
            raise unavailable("engine_unknown", "the engine's weights are not verified", retry_after=10)

    def require_healthy(self) -> None:
        """Raises ApiError 503 unless a request would be answered: ready, and the breaker lets it through."""
        self.require_ready()
        if self.health.breaker.refusing:
            raise unavailable("engine_failing", "the engine fails; it is tried again soon")

    def as_dict(self) -> dict[str, Any]:
        """What `GET /admin/served` answers."""
        return {
            "line": self.line,
            "model": self.model,
            "checkpoint": self.checkpoint.digest,
            "path": str(self.checkpoint.path),
            "deployment": self.checkpoint.deployment,
            "engine": self.engine,
            "arm": self.arm,
            **({"name": self.name} if self.name else {}),
            "in_flight": self.gate.in_flight,
            "held": self.gate.waiting,
            "health": self.health.as_dict(),
        }


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
    engines: list[dict[str, Any]] = field(default_factory=list)  # of several: which way each went, and why


RESTARTING = "restarting"


class SwapError(Exception):
    """A swap that did not work. What is served then is in `ServedState`.

    Attributes:
        code: "swap_running", "drain_timeout", "swap_failed" (the old weights are served) or
            "engine_unknown" (they could not be loaded again; nothing is served).
        cause: the error of the update, if that is what failed.
    """

    def __init__(self, code: str, message: str, cause: RtrlError | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cause = cause


class Swapper:
    """Replaces the served weights. One swap at a time.

    Args:
        update: loads the weights in a folder into the engine, resets its caches and verifies what it
            serves; raises RtrlError when any of that fails.
        told: (attribute) called after each swap with "done" or an error's code, the target, and seconds.
        recover: called with the old weights' folder when even those could not be loaded again: starts
            the engine anew on them, and sets `ServedState.engine` when it is up.
        prepare: called with the weights' folder before requests are held: brings them to the engine.
    """

    def __init__(
        self,
        served: ServedState,
        update: Update,
        drain_timeout_s: float,
        recover: Update | None = None,
        prepare: Update | None = None,
    ) -> None:
        self._served = served
        self._update = update
        self._recover, self._prepare = recover, prepare
        self._timeout = drain_timeout_s
        self.told: Told = lambda _outcome, _target, _seconds: None
        self._busy = asyncio.Lock()

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

    async def swap(
        self,
        target: Checkpoint,
        *,
        drain_timeout_s: float | None = None,
        cut: bool = False,
        limit_s: float | None = None,
    ) -> Swapped:
        """Serve `target` from now on, also when it is served already (loaded and verified again).

        Generations in flight finish on the old weights; requests that come meanwhile wait. Goes on to
        its end when the caller is cancelled.

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

    async def _noted(self, target: Checkpoint, timeout: float, cut: bool, limit_s: float | None) -> Swapped:
        began = time.monotonic()
        try:
            done = await self._swap(target, timeout, cut, limit_s)
        except (SwapError, ApiError) as error:
            self.told(error.code, target, time.monotonic() - began)
            raise
        self.told("done", target, done.seconds)
        return done

    async def _swap(self, target: Checkpoint, timeout: float, cut: bool, limit_s: float | None) -> Swapped:
        if self._busy.locked():
            raise SwapError("swap_running", "another swap is running")
        began = time.monotonic()
        async with self._busy:
            if self._prepare is not None and self.ready:
                await self._prepared(target, limit_s)
            try:
                async with self._served.gate.exclusive(timeout, cut=cut):
                    drained = time.monotonic()
                    before = self._served.checkpoint
                    if limit_s is None:
                        self._served.require_ready()
                        verification = await self._replace(target, before)
                    else:
                        verification = await self._replace_or_restart(target, before, limit_s)
            except DrainTimeoutError as error:
                raise SwapError("drain_timeout", str(error)) from None
        seconds = time.monotonic() - began
        return Swapped(before, verification, drained - began, seconds, restarting=verification is RESTARTING)

    async def _prepared(self, target: Checkpoint, limit_s: float | None) -> None:
        """Raises SwapError; nothing is changed then."""
        assert self._prepare is not None
        try:
            async with asyncio.timeout(limit_s):
                await self._prepare(target.path)
        except TimeoutError:
            if limit_s is None:
                raise
        except RtrlError as error:
            raise SwapError("swap_failed", f"{error.message}; the same weights are served", error) from error

    async def _replace_or_restart(self, target: Checkpoint, before: Checkpoint, limit_s: float) -> Any:
        """Alone at the gate: `_replace`, if the engine can; else only say what it is to be started on."""
        served = self._served
        if served.engine == "ready":
            served.engine = "unknown"
            try:
                async with asyncio.timeout(limit_s):
                    verification = await self._update(target.path)
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
            verification = await self._update(target.path)
        except BaseException as error:
            raise await self._failed(error, before) from error
        self._served.checkpoint = target
        self._served.engine = "ready"
        return verification

    async def _failed(self, error: BaseException, before: Checkpoint) -> SwapError:
        """The old weights again, and what to tell of it. Raises SwapError when they do not load either."""
        cause = error if isinstance(error, RtrlError) else None
        what = cause.message if cause else type(error).__name__
        await self._go_back(before, what, cause)
        return SwapError("swap_failed", f"{what}; the previous weights are served", cause)

    async def _go_back(self, before: Checkpoint, what: str, cause: RtrlError | None) -> None:
        """The engine may hold anything now: load the old weights and verify them."""
        try:
            await self._update(before.path)
        except RtrlError as error:
            if self._recover is not None:
                await self._recover(before.path)
            raise SwapError(
                "engine_unknown", f"{what}; the previous weights did not load either: {error.message}", cause
            ) from error
        self._served.engine = "ready"
