"""What the admin listener controls, by line: engine and canary of the main line and of populations' lines.

Not for: HTTP (`admin.py`), starting engines (`stages/serving/lines.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stages.engine.remembered import is_there
from stages.errors import RtrlError
from stages.gateway.arms import Arms
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.rolling import Rolling
from stages.gateway.served import Checkpoint
from stages.gateway.swapper import Swapped, Swapper


class CanaryControl(Protocol):
    """Opens and closes the second arm (`stages/serving/canary.py`)."""

    async def open(self, checkpoint: Checkpoint, *, salt: str, share: float) -> Any:
        """Serve `checkpoint` to the share of users that `salt` picks; the verification."""

    def hurry(self) -> None:
        """Give up one that has no users yet."""

    async def close(self, drain_s: float) -> str:
        """End it, users first; the deployment's id, "" without one."""


class Controlled(Protocol):
    """A line that has an engine."""

    @property
    def arms(self) -> Arms: ...
    @property
    def swapper(self) -> Swapper | Rolling: ...
    @property
    def canary(self) -> CanaryControl: ...


class Others(Protocol):
    """Lines of populations (`stages/serving/lines.py`)."""

    def knows(self, line: str) -> bool:
        """Whether there may be such a line."""

    def of(self, line: str) -> Controlled | None:
        """The line, when it has an engine."""

    async def require(self, line: str) -> Controlled:
        """The line, with an engine started for it when it has none."""

    async def serve(self, line: str, checkpoint: Checkpoint) -> Any | None:
        """Start the line's engine on `checkpoint`; its verification. None when it has one."""

    async def leave(self, line: str) -> None:
        """End the line's engine: the main line answers its users."""


class Patience(NamedTuple):
    """Of a swap, as `Swapper.swap` has it; None for the gateway's own."""

    drain_s: float | None
    limit_s: float | None
    cut: bool

    async def swap(self, swapper: Swapper | Rolling, target: Checkpoint) -> Swapped:
        """Swap with it."""
        return await swapper.swap(target, drain_timeout_s=self.drain_s, limit_s=self.limit_s, cut=self.cut)


class LineControl:
    """Of one gateway.

    Args:
        swapper, canary: of the main line; None when no engine is under control.
        others: None when there are no populations.
    """

    def __init__(
        self,
        arms: Arms,
        swapper: Swapper | Rolling | None,
        canary: CanaryControl | None,
        others: Others | None = None,
    ) -> None:
        self.main = arms
        self._swapper, self._canary, self._others = swapper, canary, others

    def arms(self, line: str) -> Arms | None:
        """Arms of a line; None of one without an engine. Raises ApiError 409 for a line not served here."""
        if self._is_main(line):
            return self.main
        assert self._others is not None
        found = self._others.of(line)
        return found.arms if found else None

    def known(self, line: str) -> list[Path]:
        """Folders of what a line serves and goes back to: an engine may hold these while they are away."""
        arms = self.arms(line)
        served = arms.live.served if arms is not None else None
        return [each.path for each in (served.checkpoint, served.back) if each] if served else []

    async def swap(self, line: str, target: Checkpoint, patience: Patience) -> Swapped:
        """Serve `target`. A line without an engine gets one. Raises SwapError, ApiError.

        Whoever asks knows of a canary that has ended: the registry does, or the intent of a rollback.
        """
        done = await self._swapped(line, target, patience)
        if (arms := self.arms(line)) is not None:
            arms.ended = ""
        return done

    async def _swapped(self, line: str, target: Checkpoint, patience: Patience) -> Swapped:
        if self._is_main(line):
            if self._swapper is None:
                raise no_control()
            return await patience.swap(self._swapper, target)
        assert self._others is not None
        begun, others = time.monotonic(), self._others
        if (found := others.of(line)) is not None and self._answers(target):
            before = found.arms.live.served.checkpoint
            await _whole(others.leave(line))
            return Swapped(before, None, 0.0, time.monotonic() - begun)
        before = self.main.live.served.checkpoint  # whose users its users were
        try:
            started = await _whole(others.serve(line, target))
        except RtrlError as error:
            raise SwapError("swap_failed", error.message, error) from error
        if started is not None:
            return Swapped(before, started, 0.0, time.monotonic() - begun)
        found = others.of(line)
        assert found is not None
        return await patience.swap(found.swapper, target)

    def hurry(self, line: str) -> None:
        """A rollback wants the line: a swap of it that has changed nothing yet gives up, and so does a canary
        that has no users yet."""
        if self._is_main(line):
            swapper, canary = self._swapper, self._canary
        else:
            found = self._others.of(line) if self._others is not None else None
            swapper, canary = (found.swapper, found.canary) if found is not None else (None, None)
        if swapper is not None:
            swapper.hurry(None, None)
        if canary is not None:
            canary.hurry()

    async def open_canary(self, line: str, target: Checkpoint, salt: str, share: float) -> Any:
        """Open a canary; its verification. Raises SwapError, ApiError."""
        canary = self._canary
        try:
            if not self._is_main(line):
                assert self._others is not None
                canary = (await _whole(self._others.require(line))).canary
            if canary is None:
                raise no_control()
            return await _whole(canary.open(target, salt=salt, share=share))
        except RtrlError as error:
            raise SwapError("canary_failed", error.message, error) from error

    async def close_canary(self, line: str, drain_s: float) -> str:
        """End a canary; the deployment's id, "" without one. Raises ApiError.

        A promotion of it whose command has died, and that has changed nothing yet, gives up.
        """
        canary, swapper = self._canary, self._swapper
        if not self._is_main(line):
            assert self._others is not None
            found = self._others.of(line)
            if found is None:
                return ""
            canary, swapper = found.canary, found.swapper
        if canary is None:
            raise no_control()
        if swapper is not None:
            swapper.hurry(None, None)
        return str(await _whole(canary.close(drain_s)))

    def _answers(self, target: Checkpoint) -> bool:
        """Whether a line whose engine cannot get these weights, their disk being away, has them all the same:
        from the main line."""
        main = self.main.live.served
        serves = main.checkpoint.digest == target.digest and main.engine == "ready"
        return serves and not is_there(target.path)

    def _is_main(self, line: str) -> bool:
        main = self.main.live.served.line
        if line == main:
            return True
        if self._others is None or not self._others.knows(line):
            raise ApiError(409, "conflict", "other_line", f"the line served here is {main}")
        return False


async def _whole(doing: Coroutine[Any, Any, Any]) -> Any:
    """To its end, whoever asked: half an engine is nobody's."""
    return await asyncio.shield(asyncio.ensure_future(doing))


def no_control() -> ApiError:
    """No engine is under this gateway's control."""
    return ApiError(409, "conflict", "no_control", "this gateway does not control its engine")
