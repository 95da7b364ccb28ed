"""Which users are answered by which engine: everybody by the live checkpoint, some by a canary's.

A user is in the canary when a hash of the deployment's salt and the user falls below its share: the
same user always is, in every process, and another deployment asks other users. What a user gets
changes by deployment records only; where the canary's engine does not serve, its users are answered
by the live one, and what is recorded says so.

Beside it there may be a holdback, a share of the users who stay on the line's anchor for good, and lines of
populations, each with arms of its own: whose key is of such a population is answered there while its engine
serves, else by the main line.

Not here: engines and their weights (`stages/serving/`), what the arms are worth (`evals/ab/`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import ApiError
from stages.gateway.pace import Pace, collapsed
from stages.gateway.pool import Pool
from stages.gateway.served import ServedState


@dataclass(frozen=True, eq=False)
class Arm:
    """An engine, what it serves, and how fast. `served.arm` is recorded with every generation."""

    served: ServedState
    engine: EngineClient
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, eq=False)
class Canary:
    """The second arm: of which deployment, for which share (0 to 1) of the users; 0 while it is tried."""

    arm: Arm
    deployment: str
    salt: str
    share: float


@dataclass(frozen=True, eq=False)
class Holdback:
    """The users whom `salt` draws for `share` (0 to 1) stay on an older checkpoint, and see no canary.

    `arm` is None while there is no engine for it: the live one answers them.
    """

    arm: Arm | None
    salt: str
    share: float


def assigned(user: str, salt: str, share: float) -> bool:
    """Whether `user` is among the share (0 to 1) of users whom `salt` picks."""
    digest = hashlib.sha256(f"{salt}\0{user}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


class Arms:
    """The arms of one line. The live one is always there. For one event loop.

    Attributes:
        route: populations of API keys and the lines they have; set once.
        lines: arms of those lines that have engines of their own now.
        collapse: factor by which the canary's typical token may take longer; 0 for any.
        ended: deployment of a canary that lost its users here, until the registry was seen without it.
        opening: deployment of one whose engine starts, and whose users wait for it.
        overtaken: deployment of the last one that had no users yet when a rollback came.
    """

    def __init__(self, live: Arm) -> None:
        self.live = live
        self.pool = Pool(live)  # more engines for the live arm, where there are
        self.canary: Canary | None = None
        self.holdback: Holdback | None = None
        self.route: Mapping[str, str] = {}
        self.lines: dict[str, Arms] = {}
        self.collapse = 0.0
        self.ended = self.opening = self.overtaken = ""

    def of(self, user: str, population: str = "", key: str = "") -> Arm:
        """The arm to answer `user` now, whose API key is of `population`.

        Of the live one's engines it is that of the conversation `key`.
        """
        own = self.lines.get(self.route.get(population, "")) if population else None
        if own is not None and _serves(own.live):
            return own.of(user, key=key)
        held = self.holdback
        if held is not None and assigned(user, held.salt, held.share):
            return held.arm if held.arm is not None and _serves(held.arm) else self.pool.pick(key)
        canary = self.canary
        if canary is not None and _serves(canary.arm) and assigned(user, canary.salt, canary.share):
            return canary.arm
        return self.pool.pick(key)

    async def enter(self, user: str, timeout_s: float, population: str = "", key: str = "") -> Arm:
        """The arm of `user`, its gate entered. Raises ApiError 503 when it has nothing to serve.

        An arm that ends while one waits at its gate sends those who wait to the one that is theirs then; one
        of several engines that has nothing to serve after that, to another.
        """
        arm = self.of(user, population, key)
        await arm.served.gate.enter(timeout_s)
        while arm not in self.pool.members and (now := self.of(user, population, key)) is not arm:
            arm.served.gate.leave()
            arm = now
            await arm.served.gate.enter(timeout_s)
        lost = arm in self.pool.members and arm.served.engine != "ready"
        if lost and (other := self.pool.other(arm)) is not None:
            arm.served.gate.leave()
            arm = other
            await arm.served.gate.enter(timeout_s)
        try:
            arm.served.require_ready()
        except BaseException:
            arm.served.gate.leave()
            raise
        return arm

    def require_healthy(self) -> None:
        """Raise ApiError 503 when no engine of the live arm can be asked."""
        errors = []
        for member in self.pool.members:
            try:
                return member.served.require_healthy()
            except ApiError as error:
                errors.append(error)
        raise errors[0]

    def open(self, canary: Canary) -> None:
        """From now on `canary` answers its users. Raises ValueError when there is one."""
        if self.canary is not None:
            raise ValueError(f"deployment {self.canary.deployment} is the canary")
        self.canary = canary

    def share(self, deployment: str, share: float) -> None:
        """From now on the canary answers `share` of the users. Raises ValueError when it is another one."""
        if self.canary is None or self.canary.deployment != deployment:
            raise ValueError(f"deployment {deployment} is not the canary")
        self.canary = replace(self.canary, share=share)

    def collapsed(self) -> str:
        """Why the canary is too slow for anybody, "" when it is not."""
        if self.canary is None:
            return ""
        pace = self.canary.arm.pace
        since = pace.began()
        live = [answer for member in self.pool.members for answer in member.pace.recent(since)]
        return collapsed(live, pace.recent(), self.collapse)

    def close(self) -> Canary | None:
        """From now on the live arm answers everybody. The canary's own requests go on to their end."""
        ended, self.canary = self.canary, None
        if ended is not None and ended.share:
            self.ended = ended.deployment
        return ended

    def all(self) -> list[Arm]:
        """Every engine there is, those of populations' lines too; the live arm's first."""
        beside = [each.arm for each in (self.canary, self.holdback) if each is not None]
        more = [arm for arm in beside if arm is not None]
        return [*self.pool.members, *more, *(arm for own in self.lines.values() for arm in own.all())]

    def served(self) -> list[ServedState]:
        """What they serve."""
        return [arm.served for arm in self.all()]

    def as_dict(self) -> dict[str, Any]:
        """What is served, for `GET /admin/served`: the live arm's fields, and the others' below."""
        canary, held = self.canary, self.holdback
        members = [each.served.as_dict() for each in self.pool.members]
        told = members[0] | {
            "canary": None
            if canary is None
            else canary.arm.served.as_dict() | {"share": canary.share, "deployment": canary.deployment}
        }
        told |= {"canary_ended": self.ended} if self.ended else {}
        told |= {"canary_opening": self.opening} if self.opening else {}
        if len(members) > 1:
            told["engines"] = members
        if held is not None and held.arm is not None:
            told["holdback"] = held.arm.served.as_dict() | {"share": held.share}
        if self.lines:
            told["lines"] = {line: own.as_dict() for line, own in self.lines.items()}
        return told


def _serves(arm: Arm) -> bool:
    """Whether it answers, or does as soon as its weights are changed."""
    served = arm.served
    return (served.engine == "ready" or served.gate.closed) and not served.health.breaker.refusing
