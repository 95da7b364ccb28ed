"""What the engine behind this gateway serves.

`ServedState` is set by whoever runs the engine (`stages/serving/`) and by `Swapper`. Every generation
takes its checkpoint from here while it holds the gate, so a token is never attributed to weights that
did not sample it.

Not here: changing it (`swapper.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stages.gateway.errors import unavailable
from stages.gateway.gate import Gate
from stages.gateway.health import Health
from stages.gateway.turns import Turns

EngineState = Literal["starting", "ready", "down", "unknown"]


@dataclass(frozen=True)
class Checkpoint:
    """One set of weights: artifact digest, folder, the deployment that put it there, its reference."""

    digest: str
    path: Path
    deployment: str = ""
    ref: str = field(default="", compare=False)


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
        route: the engine's name for `checkpoint`, where that is an adapter beside its weights.
        previous: digest of a checkpoint that was served, and what the registry goes back to from it.
    """

    line: str
    model: str
    checkpoint: Checkpoint
    engine: EngineState = "starting"
    arm: str = "live"
    gate: Gate = field(default_factory=Gate)
    health: Health = field(default_factory=Health)
    name: str = ""
    turns: Turns = field(default_factory=Turns)
    route: str = ""
    previous: tuple[str, Checkpoint] | None = None

    @property
    def back(self) -> Checkpoint | None:
        """What a rollback goes back to from what is served now; None where that is not known."""
        known = self.previous
        return known[1] if known is not None and known[0] == self.checkpoint.digest else None

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
            **(_previous(back) if (back := self.back) else {}),
            "engine": self.engine,
            "arm": self.arm,
            **({"name": self.name} if self.name else {}),
            "in_flight": self.gate.in_flight,
            "held": self.gate.waiting,
            "health": self.health.as_dict(),
        }


def _previous(back: Checkpoint) -> dict[str, str]:
    return {"previous": back.digest, "previous_ref": back.ref, "previous_path": str(back.path)}
