"""Deploys behind a real `rtrl serve` with stub engines: what fails shadow replay reaches no user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rtrl_cli import shadow_view
from stages.deploy.run import DeployStage
from stages.errors import DependencyDownError
from stages.forget.forget import forget
from stages.populations import Whose
from stages.registry.looks import shadows_of
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.shadow.recorded import recent
from stages.shadow.run import ShadowFailedError
from stages.target.admin import Admin
from stages.target.canary import canary_of
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_canary import wait_for

USERS = 12


def ask(world: StubWorld, user: str, *, no_train: bool = False) -> str:
    answer = httpx.post(
        f"{world.endpoint.url}/v1/chat/completions",
        json={"model": "rtrl", "messages": [{"role": "user", "content": f"{user} asks"}]},
        headers={
            "Authorization": f"Bearer {world.key}",
            "X-Rtrl-User": user,
            "X-Rtrl-No-Train": str(int(no_train)),
        },
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["system_fingerprint"])


def flushed(world: StubWorld) -> int:
    admin = Admin(world.endpoint)
    return admin.flush_spool()


def candidate(world: StubWorld, name: str, words: str) -> str:
    made = world.checkpoint(name, world.first.digest, words=words)
    world.report(made, world.first)
    return made.ref


def test_shadow_replay_before_a_canary_and_before_everybody(serving: StubWorld) -> None:
    world, shares = serving, DeployStage(canary=0.5)
    run_stage(world.workspace, world.store, shares, {"checkpoint": world.second.ref})
    first = canary_of(world.store, "auto")
    assert first is not None
    assert shadows_of(world.store, first.id)[0]["action"] == "skipped"  # nothing was recorded yet
    run_stage(world.workspace, world.store, RollbackStage())

    for number in range(USERS):
        ask(world, f"user-{number}")
        ask(world, f"user-{number}")
    ask(world, "private", no_train=True)
    before = flushed(world)

    # a good one: what was recorded is answered again, and nothing of that is recorded
    done = run_stage(world.workspace, world.store, shares, {"checkpoint": world.second.ref})
    told = done.metrics["shadow"]
    assert (told["passed"], told["requests"], told["answered"], told["users"]) == (True, 24, 24, USERS)
    assert told["left_out"] == {"no_train": 1}
    assert {figure["name"]: figure["difference"] for figure in told["figures"]}["length"] == 0.0
    assert flushed(world) == before
    assert "passed" in shadow_view.text(told)
    run_stage(world.workspace, world.store, RollbackStage())

    # bad ones reach nobody, and say why in words and numbers
    for words, what in [
        ("stub:say <tool_call>{oh no</tool_call>", "broken calls"),
        ("stub:tokens=5", "shorter"),
    ]:
        ref = candidate(world, what.replace(" ", "-"), words)
        with pytest.raises(ShadowFailedError, match=what):
            run_stage(world.workspace, world.store, shares, {"checkpoint": ref})
        (ended, *_) = world.store.deployments.history("auto")
        assert (ended.state, canary_of(world.store, "auto")) == ("failed", None)
        (recorded,) = shadows_of(world.store, ended.id)
        assert recorded["action"] == "failed"
        assert what in shadow_view.text(recorded)
    assert world.endpoint.canary is None
    assert {ask(world, f"user-{number}") for number in range(USERS)} == {
        world.first.digest.removeprefix("sha256:")[:16]
    }

    # the same before a deploy to everybody, where that is wanted
    with pytest.raises(ShadowFailedError):
        run_stage(world.workspace, world.store, DeployStage(), [ref], ["deploy.shadow_always=true"])
    live = world.store.alias("auto", "live")
    assert live is not None
    assert live.digest == world.first.digest
    done = run_stage(
        world.workspace,
        world.store,
        DeployStage(override=True, reason="short is fine"),
        [ref],
        ["deploy.shadow_always=true"],
    )
    assert any("although shadow replay failed" in text for text in done.warnings)
    run_stage(world.workspace, world.store, RollbackStage())


def test_who_is_forgotten_is_not_asked_for_again(serving: StubWorld) -> None:
    workspace = serving.workspace
    wanted = {f"user-{number}" for number in range(USERS)}
    found = recent(workspace.spool_dir, workspace.keys_dir, Whose(("auto",)), 1000)
    assert {request.user for request in found.requests} == wanted
    assert [request.user for request in found.requests[:USERS]] == sorted(
        wanted, key=lambda name: -int(name.removeprefix("user-"))
    )  # everybody's last one first
    assert recent(workspace.spool_dir, workspace.keys_dir, Whose(("other",)), 10).requests == []
    forget(workspace, serving.store, "user-3", by="test")
    found = recent(workspace.spool_dir, workspace.keys_dir, Whose(("auto",)), 1000)
    assert {request.user for request in found.requests} == wanted - {"user-3"}
    assert found.left_out["forgotten"] > 0


def test_a_canary_too_slow_for_anybody_is_taken_away_at_once(serving: StubWorld) -> None:
    ref = candidate(serving, "slow", "stub:delay=0.8")
    none = ["deploy.shadow_requests=0"]
    run_stage(serving.workspace, serving.store, DeployStage(canary=0.5), [ref], none)
    deployment = canary_of(serving.store, "auto")
    assert deployment is not None
    get = serving.store.deployments.get

    def ended() -> bool:
        return get(deployment.id).state == "rolled_back"

    with ThreadPoolExecutor(16) as pool:
        for _ in range(5):  # of a second twenty answers count, but those before the canary's first
            list(pool.map(lambda number: ask(serving, f"fast-{number}"), range(70)))
            if wait_for(ended, 5):
                break
    assert ended()
    assert "latency collapsed" in get(deployment.id).data["rollback_reason"]


def test_an_engine_that_dies_meanwhile_ends_the_deploy(
    serving: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.shadow.run.shadow", _dies)
    with pytest.raises(DependencyDownError, match="dead"):
        run_stage(serving.workspace, serving.store, DeployStage(canary=0.5), [serving.second.ref])
    assert serving.endpoint.canary is None
    assert serving.store.deployments.history("auto")[0].state == "failed"


def _dies(*_: object, **__: object) -> None:
    raise DependencyDownError("it is dead")
