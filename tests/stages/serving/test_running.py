"""A running `rtrl serve` with the stub engine: deploy, rollback, engine killed, one per workspace."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.config import Settings
from stages.deploy.run import DeployStage
from stages.errors import InputMissingError, LockedError, RtrlError, UsageError
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving.addresses import Addresses
from stages.serving.detach import start_detached
from stages.target.admin import Admin
from tests import processes
from tests.stages.serving.conftest import StubWorld


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_deploy_and_rollback_change_what_answers(serving: StubWorld) -> None:
    first = serving.voice()
    result = run_stage(serving.workspace, serving.store, DeployStage())
    assert result.metrics["verification"]["probes"]["verdict"] == "child"
    second = serving.voice()
    assert first != second
    admin = Admin(serving.endpoint)
    served = admin.served()
    assert (served.checkpoint, served.deployment) == (serving.second.digest, result.metrics["deployment"])
    run_stage(serving.workspace, serving.store, RollbackStage())
    assert serving.voice() == first


def test_a_killed_engine_gives_503_then_the_same_checkpoint_again(serving: StubWorld) -> None:
    before, engine = serving.voice(), serving.endpoint.engine
    killed: set[int] = set()
    statuses: set[int] = set()

    def recovered() -> bool:
        pid = serving.endpoint.engine.pid
        if 503 not in statuses and pid not in killed:  # again, where it came back before anybody asked
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        statuses.add(serving.ask().status_code)
        return 503 in statuses and serving.ask().status_code == 200

    assert wait_for(recovered)
    assert statuses <= {200, 503}
    assert serving.voice() == before
    assert serving.endpoint.engine.pid != engine.pid
    assert serving.endpoint.engine.url == engine.url


def test_one_per_workspace(serving: StubWorld) -> None:
    with pytest.raises(LockedError, match=str(serving.endpoint.pid)):
        start_detached(serving.workspace)
    second = processes.rtrl("serve", "-w", str(serving.workspace.root))
    assert second.returncode == 11
    assert str(serving.endpoint.pid) in second.stderr


@pytest.mark.parametrize(
    ("setting", "kind", "code"),
    [
        ("gateway.port={taken}", UsageError, 2),
        ("workspace.line=other", InputMissingError, 5),
    ],
)
def test_what_stands_in_the_way_is_said(
    serving: StubWorld, tmp_path: Path, setting: str, kind: type[RtrlError], code: int
) -> None:
    """In a second workspace, whose port is the first one's."""
    taken = serving.endpoint.url.rpartition(":")[2]
    other = StubWorld(tmp_path)
    with pytest.raises(kind) as caught:
        start_detached(other.workspace, overrides=[setting.format(taken=taken)])
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)


def test_admin_socket_of_the_workspace(tmp_path: Path) -> None:
    """It lay where `rtrl serve` was given, and no command from elsewhere found it: no rollback either."""
    settings = Settings.parse('[gateway]\nport = 0\nadmin_socket = "a.sock"', source="test")
    addresses = Addresses(tmp_path / "run", settings, tls=False)
    with contextlib.ExitStack() as resources:
        addresses.bind(resources)
        assert (tmp_path / "a.sock").is_socket()
