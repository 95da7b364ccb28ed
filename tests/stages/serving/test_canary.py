"""A canary behind a running `rtrl serve` with stub engines: its users, its end, and what kills it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest

from stages import locks
from stages.deploy.run import DeployStage
from stages.errors import GateRejectedError, InputMissingError, LockedError, UsageError
from stages.gateway.arms import assigned
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving.detach import serving_pid, start_detached, stop
from stages.spool import Spool
from stages.target.admin import Admin
from stages.target.canary import canary_of
from tests.stages.serving.conftest import StubWorld

USERS = [f"user-{number}" for number in range(30)]
SHARE = 0.4


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def ask(world: StubWorld, user: str) -> str:
    """The checkpoint that answers a user, as its fingerprint in the answer tells."""
    answer = httpx.post(
        f"{world.endpoint.url}/v1/chat/completions",
        json={"model": "rtrl", "messages": [{"role": "user", "content": "hi"}]},
        headers={"Authorization": f"Bearer {world.key}", "X-Rtrl-User": user},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["system_fingerprint"])


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]


@pytest.fixture(scope="module")
def canary(serving: StubWorld) -> StubWorld:
    result = run_stage(serving.workspace, serving.store, DeployStage(canary=SHARE))
    assert result.metrics["verification"]["probes"]["verdict"] == "child"
    assert result.metrics["share"] == SHARE
    return serving


def test_the_users_that_the_salt_picks_are_answered_by_it_and_always_are(canary: StubWorld) -> None:
    deployment = canary_of(canary.store, "auto")
    assert deployment is not None
    assert deployment.checkpoint == canary.second.digest
    expected = {
        user: short(canary.second.digest if assigned(user, deployment.salt, SHARE) else canary.first.digest)
        for user in USERS
    }
    assert len(set(expected.values())) == 2
    for _ in range(2):
        assert {user: ask(canary, user) for user in USERS} == expected
    admin = Admin(canary.endpoint)
    admin.flush_spool()
    spool = Spool.open(canary.workspace.spool_dir)
    try:
        told = {g.user: (g.arm, g.spans[0].checkpoint) for _, g, _ in spool.generations(0, 1 << 60)}
    finally:
        spool.close()
    for user in USERS:
        chosen = assigned(user, deployment.salt, SHARE)
        assert told[user] == (("canary", canary.second.digest) if chosen else ("live", canary.first.digest))


def test_candidates_queue_and_do_not_stack(canary: StubWorld) -> None:
    with pytest.raises(LockedError, match="canary"):
        run_stage(canary.workspace, canary.store, DeployStage())
    with pytest.raises(LockedError, match="canary"):
        run_stage(canary.workspace, canary.store, DeployStage(canary=0.1))
    with pytest.raises(UsageError, match="--canary"):
        run_stage(canary.workspace, canary.store, DeployStage(canary=0.1, offline=True))


def test_a_restarted_gateway_opens_it_again_for_the_same_users(canary: StubWorld) -> None:
    before = {user: ask(canary, user) for user in USERS}
    os.kill(canary.endpoint.pid, signal.SIGKILL)
    assert wait_for(lambda: serving_pid(canary.workspace) is None)
    start_detached(canary.workspace)
    assert wait_for(lambda: canary.endpoint.canary is not None)
    assert wait_for(lambda: {user: ask(canary, user) for user in USERS} == before)


def test_rollback_gives_everybody_the_live_checkpoint(canary: StubWorld) -> None:
    deployment = canary_of(canary.store, "auto")
    assert deployment is not None
    result = run_stage(canary.workspace, canary.store, RollbackStage(reason="worse"))
    assert result.metrics["changed"]
    assert {ask(canary, user) for user in USERS} == {short(canary.first.digest)}
    ended = canary.store.deployments.get(deployment.id)
    assert (ended.state, ended.data["rollback_reason"]) == ("rolled_back", "worse")
    assert canary.endpoint.canary is None
    with pytest.raises(InputMissingError, match="no canary"):
        run_stage(canary.workspace, canary.store, DeployStage(promote=True))
    for share in (0, SHARE):  # as cron would: the report still says that it passed
        with pytest.raises(GateRejectedError, match="rolled back when it was served: worse") as caught:
            run_stage(canary.workspace, canary.store, DeployStage(canary=share))
        assert canary.second.ref in caught.value.hint


def test_a_canary_whose_engine_dies_is_rolled_back_and_nobody_waits(canary: StubWorld) -> None:
    run_stage(canary.workspace, canary.store, DeployStage(canary=SHARE), [canary.second.ref])
    deployment = canary_of(canary.store, "auto")
    assert deployment is not None
    assert canary.endpoint.canary is not None
    os.kill(canary.endpoint.canary.pid, signal.SIGKILL)
    assert wait_for(lambda: canary.store.deployments.get(deployment.id).state == "rolled_back")
    assert "engine" in canary.store.deployments.get(deployment.id).data["rollback_reason"]
    assert {ask(canary, user) for user in USERS} == {short(canary.first.digest)}


def test_promotion_gives_it_to_everybody(canary: StubWorld) -> None:
    run_stage(canary.workspace, canary.store, DeployStage(canary=SHARE), [canary.second.ref])
    deployment = canary_of(canary.store, "auto")
    assert deployment is not None
    run_stage(canary.workspace, canary.store, DeployStage(promote=True, reason="looks good"))
    assert {ask(canary, user) for user in USERS} == {short(canary.second.digest)}
    live = canary.store.alias("auto", "live")
    assert live is not None
    assert live.digest == canary.second.digest
    assert canary.store.deployments.get(deployment.id).state == "live"
    assert canary.endpoint.canary is None
    run_stage(canary.workspace, canary.store, RollbackStage())
    assert {ask(canary, user) for user in USERS} == {short(canary.first.digest)}


def test_a_deploy_killed_before_the_registry_knew_leaves_no_canary(canary: StubWorld) -> None:
    lock = canary.store.lock_path("target-auto")
    with locks.hold(lock, what="deploy", timeout=10.0):  # until it was killed
        made = canary.store.deployments.create("auto", canary.second.digest, by="test", reason="killed")
        canary.store.deployments.transition(made.id, "staged", "verifying")
        admin = Admin(canary.endpoint)
        admin.open_canary(
            line="auto",
            checkpoint=canary.second.digest,
            path=canary.second.path,
            deployment=made.id,
            salt="s",
            share=0.5,
            timeout_s=30,
        )
    assert wait_for(lambda: canary.endpoint.canary is None)
    assert canary.store.deployments.get(made.id).state == "failed"
    assert {ask(canary, user) for user in USERS} == {short(canary.first.digest)}
    stop(canary.workspace)
