"""The gateway of one `rtrl serve`, and the engines that there may be beside the live one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stages.engine.process import EngineProcess
from stages.gateway.app import Gateway
from stages.registry.store import Store
from stages.serving.announce import Announcer
from stages.serving.canary import CanaryEngine
from stages.serving.lines import Lines
from stages.serving.supervisor import Say, Supervisor
from stages.workspace import Workspace


class Edge(NamedTuple):
    """None of the engines runs at first: the registry says which do (`keep_canary`, `Lines.keep`)."""

    gateway: Gateway
    canary: CanaryEngine
    lines: Lines

    @classmethod
    def make(
        cls,
        workspace: Workspace,
        store: Store,
        gateway: Gateway,
        flush: Callable[[], int],
        announcer: Announcer,
        say: Say,
        changed: Callable[[EngineProcess | None], None],
    ) -> Edge:
        """Of a workspace. `flush` makes what was answered durable; `changed` hears of each engine's start."""
        settings, logs = workspace.settings, store.dir / "logs"
        canary = CanaryEngine(
            settings.engine, settings.gateway, gateway.arms, logs / "canary.log", say, changed
        )
        lines = Lines(workspace, store, gateway.arms, flush, say, changed)
        announcer.metrics = gateway.metrics
        canary.told, lines.announcer = announcer.canary, announcer
        return cls(gateway, canary, lines)

    def beside(self) -> list[Supervisor]:
        """The engines that run."""
        found = [self.canary.supervisor] if self.canary.supervisor is not None else []
        return [*found, *self.lines.supervisors().values()]

    def end(self) -> None:
        """No engine beside is started any more, nor waited for: who asked for one would hold up the end."""
        self.canary.end()
        self.lines.end()
