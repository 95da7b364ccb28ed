"""`--from-run` of what changed traffic: rehearsed in an engine of its own, nothing asked of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.deploy.run import DeployStage
from stages.registry.deployments import Deployment
from stages.result import StageResult
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.stage import Artifact
from stages.target.canary import canary_of
from tests.stages.serving.conftest import StubWorld
from tests.stages.target.double import GatewayDouble


class Repeating(StubWorld):
    """A line behind a gateway that remembers what it was asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gateway = GatewayDouble(self.workspace, self.first)

    def run(self, stage: DeployStage | RollbackStage, **options: Any) -> StageResult:
        return run_stage(self.workspace, self.store, stage, **options)

    def canary(self, checkpoint: Artifact) -> Deployment:
        """An open one."""
        live = self.store.alias("auto", "live")
        made = self.store.deployments.create(
            "auto", checkpoint.digest, by="t", reason="t", previous=live.digest if live else None
        )
        self.store.deployments.transition(made.id, "staged", "verifying")
        return self.store.deployments.transition(made.id, "verifying", "canary", canary={"share": 0.1})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Repeating]:
    made = Repeating(tmp_path)
    yield made
    made.gateway.close()


def test_nothing_is_asked_of_the_gateway_and_the_open_canary_stays(world: Repeating) -> None:
    """A repeated promotion found the canary that is open now in its copy of the registry: the real engine was
    given the weights of then, and the real canary was closed."""
    world.canary(world.second)
    promoted = world.run(DeployStage(promote=True, reason="better"))
    assert world.gateway.asked == ["/admin/swap", "/admin/canary/close"]
    back = world.run(RollbackStage(reason="worse"))
    world.canary(world.second)
    ended = world.run(RollbackStage(reason="worse still"))
    deployed = world.run(DeployStage(override=True, reason="so"), refs=[world.second.ref])
    open_ = world.canary(world.checkpoint("third", world.second.digest))
    live = world.store.alias("auto", "live")
    world.gateway.asked.clear()
    for stage, recorded in (
        (DeployStage(), promoted),
        (RollbackStage(), back),
        (RollbackStage(), ended),
        (DeployStage(), deployed),
    ):
        repeated = world.run(stage, from_run=recorded.run_id)
        assert repeated.metrics["checkpoint"] == recorded.metrics["checkpoint"]
        assert repeated.metrics.get("rehearsed") == (True if recorded is not ended else None)
        assert world.gateway.asked == []
        assert canary_of(world.store, "auto") == open_
        assert world.store.alias("auto", "live") == live == world.second
