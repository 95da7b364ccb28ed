"""A long loop with real vLLM: a task's chain runs over two deployments, a restart of the gateway and a death
of the engine; its outcome comes late.

Every generation of the chain is trained on with the outcome as its reward, and proven by the checkpoint that
sampled it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from stages import schemas, tables
from stages.served_fingerprint import write_fingerprint
from stages.serving.detach import start_detached, stop
from stages.stage import Artifact
from stages.target.admin import Admin
from tests import processes
from tests.e2e.conftest import SETTINGS, World
from tests.e2e.tiny import nudge_checkpoint

pytestmark = pytest.mark.vllm

LONG = """
[collect]
clock = "events"
horizon_s = 28800
max_lag = 2
[distill]
spec = "background"
[train]
max_lag = 2
min_episodes = 4
ess_stop = 0            # these checkpoints are nudged at random, further apart than training goes
"""
T0, HOUR = 1_760_000_000, 3600  # s
TASKS = 6
LATE = 5  # this one's outcome comes after the horizon


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A line of three checkpoints; the first is served."""
    made = World(tmp_path, SETTINGS + LONG)
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


def rtrl(world: World, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = processes.rtrl(*arguments, "-w", str(world.workspace.root), "--json")
    return done.returncode, json.loads(done.stdout)


def work(world: World, hours: float, names: list[str]) -> dict[str, int]:
    """One model call of each task's chain, at that time; tokens by generation. An answer may end early."""
    found = {}
    for name in names:
        about = {"X-Rtrl-User": name, "X-Rtrl-Session": name, "X-Rtrl-Episode": f"task-{name}"}
        answer = httpx.post(
            f"{world.url}/chat/completions",
            json={
                "model": "rtrl", "max_tokens": 12, "temperature": 1.0,
                "messages": [{"role": "user", "content": f"step {hours:g} of {name}"}],
            },
            headers={**world.headers, **about, "X-Rtrl-At": str(T0 + hours * HOUR)},
            timeout=60,
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        tokens = answer.json()["usage"]["completion_tokens"]
        found[answer.headers["x-rtrl-generation-id"]] = tokens
    return found


def outcome(world: World, generation: str, hours: float, value: float) -> None:
    event = {
        "id": f"outcome-{generation}", "generation_id": generation, "type": "outcome",
        "at": T0 + hours * HOUR, "data": {"value": value},
    }  # fmt: skip
    answer = httpx.post(f"{world.url}/events", json=event, headers=world.headers, timeout=60)
    assert answer.status_code == 200, answer.text


def child_of_second(world: World) -> Artifact:
    """A third checkpoint, which passed."""
    parent = world.root / "second"
    folder = nudge_checkpoint(parent, world.root / "third", seed=3, step=0.05)
    write_fingerprint(folder, parent=parent)
    made = world.publish(folder, world.second)
    world.report(made, world.second)
    return made


def the_engine_dies_and_comes_back(world: World) -> None:
    """SIGKILL: 503 until another engine serves what is live; nothing of the old one stays."""
    engine = world.endpoint.engine
    children = psutil.Process(engine.pid).children(recursive=True)
    os.kill(engine.pid, signal.SIGKILL)
    statuses = []
    deadline = time.monotonic() + 120
    body = {"model": "rtrl", "max_tokens": 4, "prompt": "x"}
    headers = {**world.headers, "X-Rtrl-No-Train": "1", "X-Rtrl-At": str(T0)}
    while time.monotonic() < deadline:
        statuses.append(
            httpx.post(f"{world.url}/completions", json=body, headers=headers, timeout=60).status_code
        )
        if statuses[-1] == 200 and 503 in statuses:
            break
        time.sleep(0.1)
    assert set(statuses) == {200, 503}
    assert world.endpoint.engine.pid != engine.pid
    assert not [p for p in children if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    with Admin(world.endpoint) as admin:
        assert admin.served().checkpoint == world.store.resolve("checkpoint@live", "auto").digest


def test_outcomes_six_hours_late_reach_the_right_tokens_with_the_right_sampler(world: World) -> None:
    names = [f"user{n}" for n in range(TASKS)]
    first = work(world, 0, names)
    assert rtrl(world, "deploy")[0] == 0
    third = child_of_second(world)
    second = work(world, 1, names)
    stop(world.workspace)  # the gateway restarts
    start_detached(world.workspace)
    assert rtrl(world, "deploy")[0] == 0
    the_engine_dies_and_comes_back(world)
    last = work(world, 2, names)

    code, waiting = rtrl(world, "collect")
    assert code == 4
    assert f"{TASKS} immature" in waiting["error"]["message"]

    for n, generation in enumerate(
        first
    ):  # told once, about the chain's first call, six hours after its last
        outcome(world, generation, 2 + (9 if n == LATE else 6), 1.0 if n % 2 else -1.0)
    work(world, 12, ["somebody"])  # time goes on

    code, collected = rtrl(world, "collect")
    assert code == 0, collected
    assert collected["metrics"]["episodes"] == TASKS
    assert collected["metrics"]["generations"] == 3 * TASKS
    assert collected["metrics"]["left_behind"] == {"immature": 1, "no_train": 1}  # that is the probe

    code, distilled = rtrl(world, "distill")
    assert code == 0, distilled
    experience = world.store.latest("experience")
    assert experience is not None
    schema = schemas.experience_episodes(("task_outcome",))
    rows = tables.read(experience.path / schemas.EPISODES_FILE, schema).to_pylist()
    told = {row["user"]: row["task_outcome"] for row in rows}
    assert sorted(told.values(), key=str) == sorted([1.0, -1.0, 1.0, -1.0, -1.0, None], key=str)
    assert {row["n_generations"] for row in rows} == {3}
    assert {row["lag"] for row in rows} == {2}
    assert experience.meta["counts"]["trainable"] == TASKS

    code, trained = rtrl(world, "train")
    assert code == 0, trained
    proof = trained["metrics"]["proof"]
    assert sorted(one["lag"] for one in proof.values()) == [0, 1, 2]
    sampled = {lag: sum(tokens.values()) for lag, tokens in enumerate((last, second, first))}
    assert {one["lag"]: one["tokens"] for one in proof.values()} == sampled
    assert all(one["p99"] < 1e-3 for one in proof.values()), proof
    assert trained["inputs"]["parent"] == third.ref
