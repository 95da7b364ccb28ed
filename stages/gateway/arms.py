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
        self.canary: Canary | None = None

    def of(self, user: str) -> Arm:
        """The arm to answer `user` now."""
        canary = self.canary
        if canary is None or canary.arm.served.engine != "ready":
            return self.live
        return canary.arm if assigned(user, canary.salt, canary.share) else self.live

    async def enter(self, user: str, timeout_s: float) -> Arm:
        """The arm of `user`, its gate entered. Raises ApiError 503 when it has nothing to serve.

        A canary that ends while one waits at its gate sends those who wait to the live arm.
        """
        arm = self.of(user)
        await arm.served.gate.enter(timeout_s)
        if arm is not self.live and self.of(user) is not arm:
            arm.served.gate.leave()
            arm = self.live
            await arm.served.gate.enter(timeout_s)
        try:
            arm.served.require_ready()
        except BaseException:
            arm.served.gate.leave()
            raise
        return arm

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
        """Every arm there is; the live one first."""
        return [self.live, *([self.canary.arm] if self.canary is not None else ())]

    def served(self) -> list[ServedState]:
        """What they serve."""
        return [arm.served for arm in self.all()]

    def as_dict(self) -> dict[str, Any]:
        """What is served, for `GET /admin/served`: the live arm's fields, and the canary's below."""
        canary = self.canary
        return self.live.served.as_dict() | {
            "canary": None
            if canary is None
            else canary.arm.served.as_dict() | {"share": canary.share, "deployment": canary.deployment}
        }
