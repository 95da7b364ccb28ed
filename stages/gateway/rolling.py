"""New weights for several engines: one after another, each verified, all or none.

A rolling update takes one engine out of traffic at a time, so that users are answered all the while. While
engines differ each records what it holds itself. When one does not take the weights, those before it get
the old ones back. A rollback that cannot wait (`limit_s`) changes all at a time.

With one engine this is that engine's `Swapper`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from stages.gateway.errors import ApiError, SwapError
from stages.gateway.haste import alone
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapped, Swapper, Told


@dataclass(frozen=True)
class Way:
    """How an engine got its weights, and why so."""

    way: str
    why: str


FULL = "in place, full weights"


class Found(Protocol):
    """Of a verified update in place (`stages/engine/verification.py`)."""

    @property
    def source(self) -> str: ...
    @property
    def keeps(self) -> str: ...
    @property
    def unstaged(self) -> str: ...


def in_place(found: Found, why: str, way: str = FULL) -> Way:
    """The way of an update that did not need another process; `why` it could read its files."""
    if found.source == "memory":
        return Way("in place, from its memory", "it had kept these weights")
    kept = f"does not keep those before: {found.keeps}" if found.keeps else "keeps those before in memory"
    ahead = "read and packed before requests were held" if found.source == "staged" else ""
    if not ahead and found.unstaged:
        ahead = f"not before requests were held: {found.unstaged}"
    return Way(way, "; ".join(each for each in (why, ahead, kept) if each))


class Member(Protocol):
    """An engine whose weights can be changed."""

    @property
    def way(self) -> Way:
        """How it took the last ones."""


class Rolling:
    """Replaces the weights of all engines of a line. One swap at a time. As `Swapper` otherwise."""

    def __init__(self, swappers: list[Swapper], members: list[Member]) -> None:
        self._swappers = swappers
        self._members = members
        self._busy = asyncio.Lock()

    @property
    def told(self) -> Told:
        """Called after each engine's swap, see `Swapper`."""
        return self._swappers[0].told

    @told.setter
    def told(self, told: Told) -> None:
        for swapper in self._swappers:
            swapper.told = told

    @property
    def ready(self) -> bool:
        """Whether an engine can take weights now."""
        return any(each.ready for each in self._swappers)

    def serves(self, digest: str) -> bool:
        """Whether this is what every engine holds, or starts on."""
        return all(each.serves(digest) for each in self._swappers)

    def stage_ahead(self, target: Checkpoint) -> bool:
        """As of the `Swapper` whose engine takes the weights first; the others answer meanwhile."""
        return self._swappers[0].stage_ahead(target)

    async def swap(
        self,
        target: Checkpoint,
        *,
        drain_timeout_s: float | None = None,
        cut: bool = False,
        limit_s: float | None = None,
    ) -> Swapped:
        """Serve `target` from now on. Goes on to its end when the caller is cancelled.

        Engines that are not ready are left out, and start on the target once the others have it.

        Raises:
            SwapError: an engine did not take it; all have what they had before.
            ApiError: 503, no engine is ready.
        """
        return await asyncio.shield(self._swap(target, drain_timeout_s, cut, limit_s))

    async def _swap(
        self, target: Checkpoint, drain_timeout_s: float | None, cut: bool, limit_s: float | None
    ) -> Swapped:
        hurry = partial(self.hurry, drain_timeout_s, limit_s) if cut else None
        async with alone(self._busy, limit_s, hurry):
            patience: dict[str, Any] = {"drain_timeout_s": drain_timeout_s, "cut": cut, "limit_s": limit_s}
            if len(self._swappers) == 1:
                done = await self._swappers[0].swap(target, **patience)
                return replace(done, engines=[self._described(0, done)])
            if limit_s is not None:
                return await self._all_at_once(target, patience)
            return await self._one_by_one(target, patience)

    def hurry(self, drain_timeout_s: float | None, limit_s: float | None) -> None:
        """As `Swapper.hurry`, of every engine."""
        for each in self._swappers:
            each.hurry(drain_timeout_s, limit_s)

    async def _one_by_one(self, target: Checkpoint, patience: dict[str, Any]) -> Swapped:
        done: dict[int, Swapped] = {}
        # also those that become ready meanwhile: after the last look none of the others is
        while (i := self._next(done)) is not None:
            try:
                done[i] = await self._swappers[i].swap(target, **patience)
            except Exception as error:  # a bug too: the engines would differ until the next swap
                await self._put_back(done)
                raise self._failed(i, error) from error
        return self._together(target, done)

    def _next(self, done: dict[int, Swapped]) -> int | None:
        left = [i for i in range(len(self._swappers)) if i not in done]
        return next((i for i in left if self._swappers[i].ready), None if done else left[0])

    async def _all_at_once(self, target: Checkpoint, patience: dict[str, Any]) -> Swapped:
        swaps = [each.swap(target, **patience) for each in self._swappers]
        ended = await asyncio.gather(*swaps, return_exceptions=True)
        done = {i: each for i, each in enumerate(ended) if isinstance(each, Swapped)}
        for i, each in enumerate(ended):
            if isinstance(each, BaseException):
                await self._put_back(done)
                raise self._failed(i, each) from each
        return self._together(target, done)

    async def _put_back(self, done: dict[int, Swapped]) -> None:
        """The old weights again where the new ones are; an engine that refuses starts anew on them."""
        for i, swapped in done.items():
            swapper = self._swappers[i]
            try:
                await swapper.swap(swapped.before, drain_timeout_s=PUT_BACK_S, cut=True, limit_s=PUT_BACK_S)
            except (SwapError, ApiError):
                swapper.served.checkpoint, swapper.served.engine = swapped.before, "unknown"

    def _together(self, target: Checkpoint, done: dict[int, Swapped]) -> Swapped:
        for i, each in enumerate(self._swappers):
            if i not in done:
                each.served.checkpoint = target  # it is down: what it starts on
        first = next((each for each in done.values() if not each.restarting), next(iter(done.values())))
        return replace(
            first,
            seconds=sum(each.seconds for each in done.values()),
            restarting=all(each.restarting for each in done.values()),
            engines=[self._described(i, done.get(i)) for i in range(len(self._swappers))],
        )

    def _described(self, i: int, done: Swapped | None) -> dict[str, Any]:
        way = self._members[i].way
        if done is None:
            way = Way("restart", "it was not ready, and starts on these weights")
        elif done.restarting:
            way = Way("restart", "it did not answer in time")
        served: ServedState = self._swappers[i].served
        seconds = round(done.seconds, 3) if done is not None else None
        why = f"{way.why}; {done.went_on} answers went on" if done is not None and done.went_on else way.why
        return {"engine": served.name or served.arm, "way": way.way, "why": why, "seconds": seconds}

    def _failed(self, i: int, error: BaseException) -> BaseException:
        if not isinstance(error, SwapError):
            return error
        name = self._swappers[i].served.name
        return SwapError(error.code, f"engine {name}: {error.message}, by every engine", error.cause)


PUT_BACK_S = 30.0  # patience with an engine that gets its old weights back
