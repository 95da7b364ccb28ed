"""Lines of populations and a holdback behind a running `rtrl serve` with stub engines."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from stages.anchor import move_anchor
from stages.deploy.run import DeployStage
from stages.errors import DependencyDownError
from stages.gateway.arms import assigned
from stages.gateway.keys import ApiKeys
from stages.registry.holdbacks import holdback_of
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.stage import Artifact
from stages.target import light
from stages.target.admin import Admin
from stages.target.canary import canary_of
from stages.target.intent import read_intent
from stages.workspace import Workspace
from tests import processes, salted
from tests.stages.serving.conftest import SETTINGS, StubWorld
from tests.stages.serving.test_canary import short, wait_for
from tests.stages.serving.test_lifecycle import gone

USERS = [f"user-{number}" for number in range(12)]
EVEN = "even-1"  # draws half of them
MORE = """
[ab]
holdback = 0.2
[populations.acme]
labels = ["acme-ide"]
[populations.acme.ab]
holdback = 0.0
"""


class LinesWorld(StubWorld):
    """With a key of population `acme-ide`; anchor and live of the main line are `first`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        settings = SETTINGS.replace("[deploy]", "[deploy]\nshadow_requests = 0") + MORE
        (root / "ws" / "rtrl.toml").write_text(settings)
        self.workspace = Workspace(root / "ws")
        self.acme_key = ApiKeys.create(self.workspace.keys_dir, "acme", population="acme-ide")
        self.store.move_alias("auto", "anchor", self.first.digest, reason="init", by="test")
        self.acme = self.workspace.on_line("acme")

    def by(self, user: str, key: str = "", text: str = "hi") -> str:
        """The checkpoint that answers a user."""
        answer = httpx.post(
            f"{self.endpoint.url}/v1/chat/completions",
            json={"model": "rtrl", "messages": [{"role": "user", "content": text}]},
            headers={"Authorization": f"Bearer {key or self.key}", "X-Rtrl-User": user},
            timeout=30,
        )
        if answer.status_code == 503:  # it was sent to an engine that died just then
            return ""
        assert answer.status_code == 200, answer.text
        return str(answer.json()["system_fingerprint"])

    def everybody(self, key: str = "") -> dict[str, str]:
        return {user: self.by(user, key) for user in USERS}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinesWorld]:
    made = LinesWorld(tmp_path_factory.mktemp("lines"))
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def test_a_population_has_what_its_line_has_and_nobody_else_does(world: LinesWorld) -> None:
    first, second = short(world.first.digest), short(world.second.digest)
    assert set(world.everybody(world.acme_key).values()) == {first}  # no line yet: the main one answers
    world.report(world.second, world.first, "acme")  # of the line's own gate
    done = run_stage(world.acme, world.store, DeployStage(), [world.second.ref])
    assert done.metrics["verification"]["probes"]["verdict"] == "child"
    assert world.store.resolve("checkpoint@live", "acme").digest == world.second.digest
    assert world.store.resolve("checkpoint@live", "auto").digest == world.first.digest
    assert set(world.everybody(world.acme_key).values()) == {second}
    assert set(world.everybody().values()) == {first}
    admin = Admin(world.endpoint)
    assert (admin.served().line, admin.served("acme").line) == ("auto", "acme")
    admin.flush_spool()
    again = run_stage(world.acme, world.store, DeployStage(), [world.second.ref])
    assert again.status == "noop"
    spool = Spool.open(world.workspace.spool_dir)
    try:
        last = [g for _, g, _ in spool.generations(0, 1 << 60)][-2 * len(USERS) :]
    finally:
        spool.close()
    assert {(g.line, g.arm, g.population) for g in last} == {
        ("acme", "live", "acme-ide"),
        ("auto", "live", ""),
    }


def test_its_engine_is_down_and_the_main_line_answers_until_it_is_back(world: LinesWorld) -> None:
    first, second = short(world.first.digest), short(world.second.digest)
    killed: set[int] = set()
    seen: list[str] = []

    def back() -> bool:
        pid = world.endpoint.others["acme"].pid
        if first not in seen and pid not in killed:  # again, where it came back before anybody asked
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        seen.append(world.by("user-1", world.acme_key))
        return seen[-1] == second and first in seen

    assert wait_for(back), seen


def test_it_has_a_canary_of_its_own(world: LinesWorld) -> None:
    first, second = short(world.first.digest), short(world.second.digest)
    third = world.checkpoint("third", world.second.digest)
    world.report(third, world.second, "acme")
    with salted.drawn_by(EVEN):  # as a cycle deploys, which has no flags
        run_stage(world.acme, world.store, DeployStage(), [third.ref], ["deploy.canary_share=0.5"])
    deployment = canary_of(world.store, "acme")
    assert deployment is not None
    assert canary_of(world.store, "auto") is None
    expected = {
        user: short(third.digest) if assigned(user, deployment.salt, 0.5) else second for user in USERS
    }
    assert len(set(expected.values())) == 2
    assert world.everybody(world.acme_key) == expected
    assert set(world.everybody().values()) == {first}
    run_stage(world.acme, world.store, RollbackStage())
    assert set(world.everybody(world.acme_key).values()) == {second}


def test_its_users_are_back_while_the_store_is_away(world: LinesWorld) -> None:
    """From its canary and from its engine, which cannot read what to go back to: the main line has it."""
    third = world.store.resolve("checkpoint@v3")
    first = short(world.first.digest)
    run_stage(world.acme, world.store, DeployStage(canary=0.5), [third.ref])
    canary, aside = canary_of(world.store, "acme"), world.store.dir.with_name("aside")
    assert canary is not None
    assert wait_for(lambda: told(world)["lines"]["acme"].get("previous") == world.first.digest)
    world.store.dir.rename(aside)
    try:
        root = str(world.workspace.root)
        back = processes.rtrl("rollback", "--json", "--line", "acme", "--to", world.first.ref, "-w", root)
        assert back.returncode == 0, back.stdout
        assert "not on record" in json.loads(back.stdout)["warnings"][0]
        assert set(world.everybody(world.acme_key).values()) == {first}
    finally:
        aside.rename(world.store.dir)
    assert wait_for(lambda: read_intent(world.workspace.run_dir, "acme") is None)
    assert world.store.deployments.get(canary.id).state == "rolled_back"
    assert world.store.resolve("checkpoint@live", "acme").digest == world.first.digest
    assert set(world.everybody(world.acme_key).values()) == {first}
    assert "acme" not in told(world).get("lines", {})
    run_stage(world.acme, world.store, DeployStage(), [world.second.ref])


def told(world: LinesWorld) -> dict[str, Any]:
    return light.served(world.endpoint) or {}


def test_back_where_the_main_line_is_it_has_no_engine(world: LinesWorld) -> None:
    first = short(world.first.digest)
    # back where the main line is: no engine of its own is needed any more
    run_stage(world.acme, world.store, RollbackStage())
    assert set(world.everybody(world.acme_key).values()) == {first}
    assert wait_for(lambda: "acme" not in world.endpoint.others)
    assert set(world.everybody(world.acme_key).values()) == {first}


def test_the_held_back_stay_on_the_anchor_for_good(world: LinesWorld) -> None:
    first, second = short(world.first.digest), short(world.second.digest)
    assert holdback_of(world.store, "auto") is None  # anchor and live are the same: nobody is held back
    run_stage(world.workspace, world.store, DeployStage())
    assert wait_for(lambda: holdback_of(world.store, "auto") is not None)
    held = holdback_of(world.store, "auto")
    assert held is not None
    assert held.checkpoint == world.first.digest
    pool = {f"user-{number}": assigned(f"user-{number}", held.salt, 0.2) for number in range(200)}
    some = [*[u for u in pool if pool[u]][:4], *[u for u in pool if not pool[u]][:4]]
    expected = {user: first if pool[user] else second for user in some}

    def answered() -> dict[str, str]:
        return {user: world.by(user) for user in some}

    assert len(set(expected.values())) == 2
    assert wait_for(lambda: answered() == expected)
    admin = Admin(world.endpoint)
    admin.flush_spool()
    spool = Spool.open(world.workspace.spool_dir)
    try:
        last = [g for _, g, _ in spool.generations(0, 1 << 60)][-len(some) :]
    finally:
        spool.close()
    assert {g.user for g in last if g.arm == "holdback"} == {user for user in some if pool[user]}
    assert "auto/holdback" in world.endpoint.others
    # a line of that name, which is answered by the main one: the held back's engine passed for its own
    assert world.endpoint.live_of("holdback") == world.endpoint.engine
    # the anchor takes them along
    move_anchor(world.store, "auto", world.second.ref, reason="far enough")
    assert wait_for(lambda: "auto/holdback" not in world.endpoint.others)
    assert set(answered().values()) == {second}


@pytest.fixture(scope="module")
def wider(world: LinesWorld) -> Artifact:
    """A checkpoint whose weights no engine that runs can take; it passed for both lines."""
    made = world.checkpoint("wider", world.first.digest, config='{"hidden_size": 8}')
    world.report(made, world.second)
    world.report(made, world.first, "acme")
    return made


def engines(world: LinesWorld) -> set[int]:
    found = set()
    for child in psutil.Process(world.endpoint.pid).children():
        with suppress(psutil.Error):  # one that ends at this moment
            if "stages.engine.launch" in child.cmdline():
                found.add(child.pid)
    return found


@pytest.mark.parametrize("line", ["auto", "acme"])
def test_a_second_engine_that_nobody_came_for_ends(world: LinesWorld, wider: Artifact, line: str) -> None:
    """An answer is under way for longer than the deploy waits."""
    of = {"auto": (world.workspace, world.key), "acme": (world.acme, world.acme_key)}
    (workspace, key), hold, before = of[line], world.root / "hold", engines(world)
    hold.touch()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(world.by, "user-1", key, f"stub:hold={hold}")
        try:
            assert wait_for(lambda: in_flight(world, line) == 1)
            with pytest.raises(DependencyDownError, match="still running"):
                run_stage(workspace, world.store, DeployStage(), [wider.ref], ["deploy.drain_timeout_s=0.1"])
        finally:
            hold.unlink()
        assert asking.result()
    assert wait_for(lambda: engines(world) == before)


def in_flight(world: LinesWorld, line: str) -> int:
    found = told(world)
    return int((found if line == "auto" else found["lines"][line])["in_flight"])


def test_its_users_go_along_to_a_second_engine(world: LinesWorld, wider: Artifact) -> None:
    """Traffic is switched, and nobody is refused."""
    before = world.endpoint.others["acme"]
    run_stage(world.acme, world.store, DeployStage(), [wider.ref])
    assert set(world.everybody(world.acme_key).values()) == {short(wider.digest)}
    assert wait_for(lambda: gone(before.pid))
    assert world.endpoint.others["acme"].url != before.url
