"""Which users are answered by which engine: everybody by the live checkpoint, some by a canary's.

A user is in the canary when a hash of the deployment's salt and the user falls below its share: the
same user always is, in every process, and another deployment asks other users. What a user gets
changes by deployment records only; where the canary's engine does not serve, its users are answered
by the live one, and what is recorded says so.

Not here: engines and their weights (`stages/serving/`), what the arms are worth (`evals/ab/`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import ApiError
from stages.gateway.pool import Pool
from stages.gateway.served import ServedState


@dataclass(frozen=True, eq=False)
class Arm:
    """An engine, and what it serves. `served.arm` is recorded with every generation."""

    served: ServedState
    engine: EngineClient


@dataclass(frozen=True, eq=False)
class Canary:
    """The second arm: of which deployment, for which share (0 to 1) of the users; 0 while it is tried."""

    arm: Arm
    deployment: str
    salt: str
    share: float


def assigned(user: str, salt: str, share: float) -> bool:
    """Whether `user` is among the share (0 to 1) of users whom `salt` picks."""
    digest = hashlib.sha256(f"{salt}\0{user}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


class Arms:
    """The arms of one gateway. The live one is always there. For one event loop."""

    def __init__(self, live: Arm) -> None:
        self.live = live
        self.pool = Pool(live)  # more engines for the live arm, where there are
        self.canary: Canary | None = None

    def of(self, user: str, key: str = "") -> Arm:
        """The arm to answer `user` now; of the live one's engines, that of the conversation `key`."""
        canary = self.canary
        there = canary is not None and canary.arm.served.engine == "ready"
        if canary is not None and there and assigned(user, canary.salt, canary.share):
            return canary.arm
        return self.pool.pick(key)

    async def enter(self, user: str, timeout_s: float, key: str = "") -> Arm:
        """The arm of `user`, its gate entered. Raises ApiError 503 when it has nothing to serve.

        A canary that ends while one waits at its gate sends those who wait to the live arm; an engine that
        has nothing to serve after one has waited sends them to another.
        """
        arm = self.of(user, key)
        await arm.served.gate.enter(timeout_s)
        if arm not in self.pool.members and self.of(user, key) is not arm:
            arm.served.gate.leave()
            arm = self.pool.pick(key)
            await arm.served.gate.enter(timeout_s)
        if arm.served.engine != "ready" and (other := self.pool.other(arm)) is not None:
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

    def close(self) -> Canary | None:
        """From now on the live arm answers everybody. The canary's own requests go on to their end."""
        ended, self.canary = self.canary, None
        return ended

    def all(self) -> list[Arm]:
        """Every engine there is; the live arm's first."""
        return [*self.pool.members, *([self.canary.arm] if self.canary is not None else ())]

    def served(self) -> list[ServedState]:
        """What they serve."""
        return [arm.served for arm in self.all()]

    def as_dict(self) -> dict[str, Any]:
        """What is served, for `GET /admin/served`: the live arm's fields, and the canary's below."""
        canary = self.canary
        members = [each.served.as_dict() for each in self.pool.members]
        return (
            members[0]
            | ({"engines": members} if len(members) > 1 else {})
            | {
                "canary": None
                if canary is None
                else canary.arm.served.as_dict() | {"share": canary.share, "deployment": canary.deployment}
            }
        )
