"""The engines of the live arm: `engine.replicas` of this machine, and those of `[targets.NAME]`.

One swapper changes the weights of all (`stages/gateway/rolling.py`). It serves as soon as one engine does;
the others come to it when they are ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from stages.delivery.push import offering
from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.engine.update import EngineControl
from stages.errors import RtrlError, UsageError
from stages.gateway.arms import Arm
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.health import Health
from stages.gateway.rolling import Rolling
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from stages.registry.store import Store
from stages.serving.announce import Update
from stages.serving.helper_client import Offer
from stages.serving.outside import Outside
from stages.serving.supervisor import Say, Supervisor
from stages.target.config import TargetConfig
from stages.target.endpoint import EngineAt
from stages.workspace import Workspace

Engine = Supervisor | Outside


class Fleet:
    """All engines behind one gateway but a canary's.

    Args:
        line, checkpoint: what they serve at the start.
        logs: folder of the engines' output.
        changed: called with each newly started process.
        updating: put around each engine's update.
        offer: as `Outside`'s.
    """

    def __init__(
        self,
        config: EngineConfig,
        targets: Mapping[str, TargetConfig],
        gateway: GatewayConfig,
        line: str,
        checkpoint: Checkpoint,
        logs: Path,
        say: Say,
        changed: Callable[[EngineProcess], None],
        updating: Callable[[Update], Update] = lambda update: update,
        offer: Offer = lambda *_: None,
    ) -> None:
        self._gateway = gateway
        self.engines: list[Engine] = []
        own = [str(number + 1) for number in range(config.replicas)]
        several = len(own) + len(targets) > 1
        for name in [*own, *targets]:
            label = f"live/{name}" if several else "live"
            served = ServedState(
                line=line,
                model=config.served_name,
                checkpoint=checkpoint,
                health=Health.of(gateway.breaker, label),
                name=name if several else "",
            )
            if name in targets:
                self.engines.append(Outside(name, targets[name], config, served, say, offer))
            else:
                log = logs / ("engine.log" if name == "1" else f"engine-{name}.log")
                one = config if name == "1" else config.model_copy(update={"port": 0})
                self.engines.append(Supervisor(one, served, log, say, changed))
        if not self.engines:
            raise UsageError("engine.replicas is 0 and there are no [targets.NAME]", hint="name an engine")
        drain_s = gateway.drain_timeout_s
        goes_on = gateway.in_flight == "continue"
        swappers = [
            Swapper(
                each.served,
                updating(each.update),
                drain_s,
                prepare=getattr(each, "prepare", None),
                keeper=each if goes_on else None,
                stager=partial(_control, each) if _stages(each, config) else None,
                beside=each if isinstance(each, Supervisor) and config.lora_rank else None,
                release=each.release if isinstance(each, Supervisor) else lambda: None,
            )
            for each in self.engines
        ]
        self.swapper = Rolling(swappers, list(self.engines))

    @classmethod
    def of(
        cls,
        workspace: Workspace,
        store: Store,
        line: str,
        checkpoint: Checkpoint,
        say: Say,
        changed: Callable[[EngineProcess], None],
        updating: Callable[[Update], Update],
    ) -> Fleet:
        """The engines that the workspace's settings name."""
        settings, logs = workspace.settings, store.dir / "logs"
        offer = offering(store, settings.deploy.store)
        targets = {name: each.within(workspace.root) for name, each in settings.targets.items()}
        own = settings.engine, targets, settings.gateway
        return cls(*own, line, checkpoint, logs, say, changed, updating, offer)

    @property
    def first(self) -> ServedState:
        """What the first engine serves."""
        return self.engines[0].served

    @property
    def own(self) -> list[Supervisor]:
        """The engines that run on this machine."""
        return [each for each in self.engines if isinstance(each, Supervisor)]

    def arms(self) -> list[Arm]:
        """The engines as the gateway asks them. In its event loop."""
        found = []
        for each in self.engines:
            breaker = each.served.health.breaker
            client = EngineClient(each.base_url, each.key, each.served.model, self._gateway, breaker)
            if isinstance(each, Supervisor):
                each.moved = client.move
            else:
                client.known = each.known
            found.append(Arm(each.served, client))
        return found

    async def start(self) -> None:
        """Start all at a time; returns when each is ready or has failed. Raises RtrlError when none is."""
        ended = await asyncio.gather(*(each.start() for each in self.engines), return_exceptions=True)
        failed = [each for each in ended if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, RtrlError):
                raise error
        if len(failed) == len(self.engines):
            raise failed[0]

    async def watch(self) -> None:
        """Until cancelled: replace what dies."""
        await asyncio.gather(*(each.watch() for each in self.engines))

    async def stop(self, *, patient: bool = True) -> None:
        """Stop those of this machine, and leave nothing behind."""
        await asyncio.gather(*(each.stop(patient=patient) for each in self.engines))


def _stages(engine: Engine, config: EngineConfig) -> bool:
    """Whether weights are made ready in it ahead: with adapters it would be the merged ones, for nothing."""
    return isinstance(engine, Supervisor) and not config.lora_rank


def _control(engine: Engine) -> EngineControl:
    return engine.control  # another one, once traffic was switched to a second engine


def engine_at(supervisor: Engine) -> EngineAt:
    """What `run/serve.json` says of an engine."""
    if not isinstance(supervisor, Supervisor):
        return EngineAt(pid=0, url=supervisor.base_url, key=supervisor.key, log="", temporary="")
    if supervisor.pid is None:
        return EngineAt(pid=0, url=supervisor.base_url, key="", log="", temporary="")
    return EngineAt(
        pid=supervisor.process.pid,
        url=supervisor.base_url,
        key=supervisor.key,
        log=str(supervisor.log),
        temporary=str(supervisor.process.temporary),
    )
