"""A running gateway before three engines: two of its own, one outside. Stub engines."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stages.deploy.run import DeployStage
from stages.engine.free_port import free_port
from stages.errors import DependencyDownError, IntegrityError
from stages.gateway.stub_script import logprob
from stages.gateway.stub_weights import StubWeights
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.target.admin import Admin
from stages.target.endpoint import EngineAt
from stages.vault import Vault
from tests.stages.serving.conftest import SETTINGS, StubWorld


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), 60).close()
    except ConnectionError:
        return False
    return True


class World(StubWorld):
    """`outside`: what runs on the other machine, the helper last, which listens at `beside`."""

    outside: list[subprocess.Popen[bytes]]
    beside: int

    def start(self, *command: str) -> None:
        """One more program of the other machine."""
        keys = {"RTRL_ENGINE_KEY": "outside-key", "RTRL_HELPER_KEY": "outside-key"}
        self.outside.append(subprocess.Popen(command, env={**os.environ, **keys}))

    def start_helper(self) -> None:
        """Its helper, which listens when this returns."""
        command = ["-m", "stages.delivery", "--store", f"file://{self.root}/depot"]
        command += ["--cache", str(self.root / "cache"), "--port", str(self.beside)]
        self.start(sys.executable, *command)
        assert wait_for(lambda: listens(self.beside))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("fleet")
    made = World(root)
    port = free_port()
    token = root / "token"
    token.write_text("outside-key")
    key = os.path.relpath(token, made.workspace.root)  # from there, wherever a command is given
    made.outside, made.beside, store = [], free_port(), f"file://{root}/depot"
    stub = ["-m", "stages.gateway.stub_engine", "--port", str(port), "--lie", "keep:liar"]
    settings = SETTINGS.replace("[engine]", "[engine]\nreplicas = 2")
    settings = settings.replace("[deploy]", f'[deploy]\nstore = "{store}"')
    settings += f'[targets.far]\nurl = "http://127.0.0.1:{port}"\nkey_file = "{key}"\n'
    settings += f'helper = "http://127.0.0.1:{made.beside}"\nhelper_key_file = "{key}"\n'
    (made.workspace.root / "rtrl.toml").write_text(settings)
    made.workspace.__dict__.pop("settings", None)
    try:
        made.start(sys.executable, *stub)
        made.start_helper()
        assert wait_for(lambda: listens(port))  # else the one outside is down at first
        start_detached(made.workspace)
        yield made
    finally:
        stop(made.workspace)
        for each in made.outside:
            each.kill()
            each.wait()


def served(world: StubWorld) -> dict[str, str]:
    admin = Admin(world.endpoint)
    return {each.name: each.checkpoint for each in admin.served().engines}


def spread(world: StubWorld, count: int = 24) -> set[int]:
    """Ask as many users; the statuses."""
    with ThreadPoolExecutor(8) as pool:
        return {answer.status_code for answer in pool.map(lambda n: world.ask(f"user {n}"), range(count))}


def exact(world: StubWorld) -> int:
    """Every generation in the spool has the logprobs of the checkpoint that it is recorded under."""
    salts: dict[str, set[int]] = {}  # of the folder here, and of the one on the other machine
    for each in world.store.all_of("checkpoint", "auto"):
        folders = each.path, world.root / "cache" / each.digest.removeprefix("sha256:")
        salts[each.digest] = {StubWeights(folder).salt for folder in folders}
    spool = Spool.open(world.workspace.spool_dir)
    vault = Vault.open(world.workspace.keys_dir)
    chains = spool.chains(vault)
    count = 0
    for _, generation, _ in list(spool.generations(0, 1 << 60)):
        _, tokens = chains.open(*spool.record(generation.id))
        token = int(tokens.output[0])
        said = float(tokens.logprobs[0])
        wanted = salts[generation.spans[0].checkpoint]
        assert any(said == pytest.approx(logprob(0, token, salt)) for salt in wanted)
        count += 1
    vault.close()
    spool.close()
    return count


def test_every_engine_answers_and_gets_the_weights(world: StubWorld) -> None:
    assert set(served(world)) == {"1", "2", "far"}
    assert spread(world) == {200}
    result = run_stage(world.workspace, world.store, DeployStage(), [world.second.ref])
    assert set(served(world).values()) == {world.second.digest}
    ways = {each["engine"]: each["way"] for each in result.metrics["engines"]}
    assert ways == dict.fromkeys(("1", "2", "far"), "in place, full weights")
    assert "its helper fetched" in result.metrics["engines"][2]["why"]
    assert result.metrics["store_bytes"] > 0
    shutil.rmtree(world.root / "depot")  # a rollback needs no store
    assert spread(world) == {200}
    run_stage(world.workspace, world.store, RollbackStage())
    assert set(served(world).values()) == {world.first.digest}
    assert spread(world) == {200}


def test_an_engine_that_lies_puts_all_back(world: StubWorld) -> None:
    liar = world.checkpoint("liar", world.first.digest)
    world.report(liar, world.first)
    with pytest.raises(IntegrityError, match="engine far") as caught:
        run_stage(world.workspace, world.store, DeployStage(), [liar.ref])
    assert caught.value.code == 12
    assert set(served(world).values()) == {world.first.digest}
    assert spread(world) == {200}


def test_a_page_in_the_place_of_the_helper_puts_all_back(world: World) -> None:
    """A deploy left the engines of this machine on the new weights, with far on those before."""
    pid = world.endpoint.pid
    third = world.checkpoint("third", world.first.digest)
    world.report(third, world.first)
    helper = world.outside.pop()
    helper.kill()
    helper.wait()
    page = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(world.beside)]
    with subprocess.Popen(page, cwd=world.root, stderr=subprocess.DEVNULL) as proxy:  # 501 and HTML to a POST
        try:
            assert wait_for(lambda: listens(world.beside))
            with pytest.raises(DependencyDownError, match="the helper of far") as caught:
                run_stage(world.workspace, world.store, DeployStage(), [third.ref])
        finally:
            proxy.kill()
    world.start_helper()
    assert (caught.value.code, "status 501" in caught.value.message) == (13, True)
    assert set(served(world).values()) == {world.first.digest}
    assert (spread(world), world.endpoint.pid) == ({200}, pid)


def seen_dead(world: StubWorld, pid: int) -> bool:
    """Whether the gateway has noticed that the second engine, of this process, died."""
    admin = Admin(world.endpoint)
    states = {each.name: each.engine for each in admin.served().engines}
    return states["2"] != "ready" or world.endpoint.more[0].pid != pid


def test_one_dead_engine_is_not_noticed_and_comes_back(world: StubWorld) -> None:
    engines: tuple[EngineAt, ...] = (world.endpoint.engine, *world.endpoint.more)
    os.kill(engines[1].pid, signal.SIGKILL)
    assert wait_for(lambda: seen_dead(world, engines[1].pid))  # what it was just answering is lost
    assert spread(world) == {200}
    assert wait_for(lambda: world.endpoint.more[0].pid != engines[1].pid)


def test_nothing_is_recorded_under_weights_that_did_not_sample_it(world: StubWorld) -> None:
    """While a rolling update runs, and a rollback of all."""
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(world.ask, f"mixed {n}") for n in range(60)]
        run_stage(world.workspace, world.store, DeployStage(), [world.second.ref])
        run_stage(world.workspace, world.store, RollbackStage())
        assert {each.result().status_code for each in asking} <= {200, 503}
    assert exact(world) > 100
