"""What `scripts/chaos.py` found: the running gateway lives through a store that is away and a full disk, and
ends what others left half done. (In small; the script does it to real processes under load.)
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stages import serve
from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.errors import DependencyDownError, InputMissingError, RtrlError, UsageError
from stages.gateway.arms import Arm, Arms, Canary
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from stages.records import CANARY
from stages.registry.deployments import Deployment
from stages.registry.store import Store
from stages.rollback.traffic import intend
from stages.serving import canary as following
from stages.serving import supervisor as watching
from stages.serving.canary import CanaryEngine, keep_canary, reconcile_canary
from stages.serving.notify import Notifier
from stages.serving.reconcile import lock_now, reconcile_once
from stages.serving.supervisor import Supervisor
from stages.target.intent import read_intent, write_intent
from tests.stages.serving.conftest import StubWorld


@pytest.fixture
def world(tmp_path: Path) -> StubWorld:
    return StubWorld(tmp_path)


def served(world: StubWorld) -> ServedState:
    first = Checkpoint(world.first.digest, world.first.path)
    return ServedState(line="auto", model="rtrl", checkpoint=first, engine="ready")


def verifying(world: StubWorld) -> Deployment:
    made = world.store.deployments.create("auto", world.second.digest, by="test", reason="test")
    return world.store.deployments.transition(made.id, "staged", "verifying")


async def test_a_deploy_that_was_killed_before_it_changed_anything_is_ended(world: StubWorld) -> None:
    """What is served is right: nothing else would make anybody look."""
    killed, state = verifying(world), served(world)
    loaded: list[Path] = []

    async def load(path: Path) -> None:
        loaded.append(path)

    swapper = Swapper(state, load, 1)
    lock = lock_now(world.store, "auto")  # a command holds it as long as it lives
    assert not await reconcile_once(world.store, state, swapper, print, world.root)
    assert world.store.deployments.get(killed.id).state == "verifying"
    lock.release()
    assert not await reconcile_once(world.store, state, swapper, print, world.root)
    assert world.store.deployments.get(killed.id).state == "failed"
    assert loaded == []


class Engine(CanaryEngine):
    """The second arm, with no process behind it."""

    def __init__(self, arms: Arms) -> None:
        super().__init__(EngineConfig(), GatewayConfig(), arms, Path("/dev/null"), print)
        self.ended: list[str] = []
        self.patient: list[bool] = []

    async def close(self, drain_s: float, *, patient: bool = True) -> str:
        ended = self._arms.close()
        self.opened.clear()
        self.supervisor = None
        self.ended.append(ended.deployment if ended else "")
        self.patient.append(patient)
        return self.ended[-1]


class Dead:
    """A supervisor whose engine has died."""

    async def trouble(self) -> str:
        return "it ended with status -9"


def arms_with(world: StubWorld, deployment: str) -> Arms:
    config = GatewayConfig()
    arms = Arms(Arm(served(world), EngineClient("http://127.0.0.1:9", "", "rtrl", config)))
    state = served(world)
    state.arm, state.checkpoint = CANARY, Checkpoint(world.second.digest, world.second.path, deployment)
    second = Arm(state, EngineClient("http://127.0.0.1:9", "", "rtrl", config))
    arms.open(Canary(second, deployment, "salt", 0.5))
    return arms


async def test_a_canary_put_on_record_while_the_gateway_waited_for_the_lock_stays(world: StubWorld) -> None:
    opening = verifying(world)
    arms = arms_with(world, opening.id)
    engine, lock = Engine(arms), lock_now(world.store, "auto")
    looking = asyncio.create_task(reconcile_canary(world.store, engine, arms, 1, print, world.root))
    await asyncio.sleep(0.2)  # it has seen no canary in the registry, and waits for the lock
    world.store.deployments.transition(opening.id, "verifying", "canary", canary={"share": 0.5})
    lock.release()
    assert not await looking
    assert engine.ended == []
    assert arms.canary is not None


async def test_a_rollback_can_have_the_line_while_a_canarys_answers_end(world: StubWorld) -> None:
    """The registry says that there is none: its command was killed between registry and traffic."""
    arms = arms_with(world, "deployment-gone")
    assert arms.canary is not None
    gate = arms.canary.arm.served.gate
    await gate.enter(1)
    engine = CanaryEngine(EngineConfig(), GatewayConfig(), arms, Path("/dev/null"), print)
    looking = asyncio.create_task(reconcile_canary(world.store, engine, arms, 60, print, world.root))
    await until(lambda: arms.canary is None)
    (await asyncio.to_thread(lock_now, world.store, "auto")).release()
    assert not looking.done()
    gate.leave()
    assert await looking


async def test_a_canary_whose_rollback_is_not_on_record_yet_is_not_opened_again(world: StubWorld) -> None:
    made = verifying(world)
    world.store.deployments.transition(made.id, "verifying", "canary", canary={"share": 0.5})
    arms = arms_with(world, made.id)
    engine = Engine(arms)  # would start a process
    await engine.close(1)
    assert (arms.as_dict()["canary"], arms.as_dict()["canary_ended"]) == (None, made.id)
    live = world.first.digest
    write_intent(world.root, intend("auto", live, live, "worse", made.id))
    looks = (world.store, engine, arms, 1, print, world.root)
    with lock_now(world.store, "auto").held():  # another command's
        assert not await reconcile_canary(*looks)
    assert arms.ended == made.id, "a rollback is still told that it was this one"
    assert not await reconcile_canary(*looks)
    assert world.store.deployments.get(made.id).data["rollback_reason"] == "worse"
    assert not await reconcile_canary(*looks)
    assert (arms.canary, arms.ended, read_intent(world.root, "auto")) == (None, "", None)


def test_a_registry_that_takes_no_writes_does_not_keep_serve_from_starting_where_the_users_are(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> bool:
        raise DependencyDownError("the registry stayed busy")

    monkeypatch.setattr(serve, "complete", busy)
    said: list[str] = []
    asked = intend("auto", world.first.digest, world.second.digest, "worse")
    write_intent(world.workspace.run_dir, asked)
    host = serve._Host(world.workspace, world.store, Notifier(), said.append)
    assert host.served.checkpoint == Checkpoint(world.second.digest, world.second.path, asked.deployment)
    assert "stayed busy" in said[0]
    lock_now(world.store, "auto").release()


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (["workspace.line=acme"], "auto"),
        (["workspace.line=acme", "workspace.serves=auto"], "auto"),
        (["workspace.line=other"], "other"),
        (["workspace.line=auto", "workspace.serves=other"], "other"),
    ],
)
def test_what_is_served_is_the_line_that_the_settings_say(
    world: StubWorld, told: list[str], line: str
) -> None:
    """With a population's line in `workspace.line` (an RTRL_WORKSPACE__LINE that a cron job's shell has)
    everybody got that checkpoint, and their use was of a line that learns from its own people alone."""
    for name in ("acme", "other"):
        world.store.move_alias(name, "live", world.second.digest, reason="begun", by="test")
    workspace = world.workspace.with_overrides(['populations.acme.labels=["acme-ide"]', *told])
    host = serve._Host(workspace, world.store, Notifier(), lambda _: None)
    assert host.served.line == line
    assert host.served.checkpoint.digest == (world.first if line == "auto" else world.second).digest


def test_a_line_to_serve_that_there_is_not_is_told(world: StubWorld) -> None:
    """It was ignored: the line worked on was served."""
    with pytest.raises(InputMissingError, match="line nope has no live checkpoint"):
        serve._Host(
            world.workspace.with_overrides(["workspace.serves=nope"]), world.store, Notifier(), lambda _: None
        )
    with pytest.raises(UsageError, match=r"workspace\.serves"):
        world.workspace.with_overrides(["workspace.serves=../.."]).settings  # noqa: B018  read for what it raises


async def test_a_canary_that_dies_while_the_store_is_away_is_rolled_back_later(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.05)
    made = verifying(world)
    world.store.deployments.transition(made.id, "verifying", "canary", canary={"share": 0.5})
    arms, said = arms_with(world, made.id), list[str]()
    engine = Engine(arms)
    engine.supervisor = Dead()  # type: ignore[assignment]
    away = world.workspace.store_dir.with_name("away")
    world.workspace.store_dir.rename(away)
    task = asyncio.create_task(keep_canary(world.store, engine, arms, 1, said.append, world.root))
    await until(lambda: arms.canary is None and len(said) > 2)
    assert (engine.ended, engine.patient) == ([made.id], [False]), "an engine that hangs is not asked"
    assert not world.workspace.store_dir.exists(), "nothing is written where the store was"
    away.rename(world.workspace.store_dir)
    await until(lambda: world.store.deployments.get(made.id).state == "rolled_back")
    assert not task.done()
    task.cancel()


async def test_an_engine_that_cannot_start_for_the_disk_is_an_error_to_try_again(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def full(process: EngineProcess) -> None:
        killed.append(process.pid)
        raise OSError(errno.ENOSPC, "No space left on device")

    state = served(world)
    supervisor = Supervisor(
        EngineConfig(program="stub"), state, world.root / "engine.log", lambda _: None, full
    )
    with pytest.raises(DependencyDownError, match="disk is full"):
        await supervisor.start()
    assert state.engine == "down"
    assert supervisor.process.exit_status() is not None, "it is not left running unnoticed"
    assert not supervisor.process.temporary.exists()
    await supervisor.control.close()


class Silent:
    """The control of an engine that hangs for some checks."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers

    async def health(self) -> str:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(("silence_s", "answers"), [(0.3, ["silent"]), (0.3, ["silent", "ok", "silent"])])
async def test_an_engine_that_answers_nothing_for_so_long_hangs(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch, silence_s: float, answers: list[str]
) -> None:
    monkeypatch.setattr(watching, "POLL_S", 0.01)
    config = EngineConfig(silence_s=silence_s, health_every_s=0.01)
    supervisor = Supervisor(config, served(world), world.root / "engine.log", print)
    supervisor.control = Silent(answers)  # type: ignore[assignment]
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    supervisor._process = EngineProcess(running, world.first.path, config, 1, "")
    try:
        begun = time.monotonic()
        assert "not answered" in await asyncio.wait_for(supervisor.trouble(), 60)
        assert time.monotonic() - begun >= silence_s
    finally:
        running.communicate(b"\n")


async def test_others_answer_while_an_engine_that_hung_gives_its_memory_back(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes seconds for it; the gateway waited for that in its event loop."""
    monkeypatch.setattr(watching, "POLL_S", 0.01)
    config = EngineConfig(silence_s=0.05, health_every_s=0.01)
    supervisor = Supervisor(config, served(world), world.root / "engine.log", lambda _: None)
    supervisor.control = Silent(["silent"])  # type: ignore[assignment]
    killing, killed = threading.Event(), threading.Event()

    class Hung(EngineProcess):
        def kill(self) -> int:
            killing.set()
            assert killed.wait(60), "the event loop stands still"
            return -9

    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    supervisor._process = Hung(running, world.first.path, config, 1, "")
    watched = asyncio.create_task(supervisor.watch())
    try:
        await until(killing.is_set)
        killed.set()  # by the event loop, which goes on
    finally:
        watched.cancel()
        await asyncio.gather(watched, return_exceptions=True)
        running.communicate(b"\n")


async def test_a_canary_that_hangs_is_given_up_sooner(world: StubWorld) -> None:
    arms = arms_with(world, "deployment-x")
    engine = CanaryEngine(EngineConfig(silence_s=90), GatewayConfig(), arms, Path("/dev/null"), print)
    assert engine._config.silence_s == following.SILENCE_S < 90


def test_a_registry_that_is_away_is_not_made_anew(world: StubWorld) -> None:
    store = Store.open(world.workspace.store_dir)
    aside = world.workspace.store_dir.with_name("aside")
    shutil.move(world.workspace.store_dir, aside)
    world.workspace.store_dir.mkdir()  # the mount point
    with pytest.raises(RtrlError):
        store.alias("auto", "live")
    assert list(world.workspace.store_dir.iterdir()) == []


def test_a_message_that_the_disk_does_not_take_ends_nothing() -> None:
    code = "from stages.serving.__main__ import say; say('one'); say('two'); print('lives')"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=False, text=True
        )
    assert done.stdout == "lives\n"


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
