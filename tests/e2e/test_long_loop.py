"""A long loop with real vLLM: a task's chain runs over two deployments, a restart of the gateway and a death
of the engine; its outcome comes late.

Every generation of the chain is trained on with the outcome as its reward, and proven by the checkpoint that
sampled it. Then, by the same engine, answers that go on under new weights: each token has the logprob of its
own checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest
import torch

from stages import modelio, schemas, tables
from stages.served_fingerprint import write_fingerprint
from stages.serving.detach import start_detached, stop
from stages.spool import Spool
from stages.stage import Artifact
from stages.target.admin import Admin
from stages.vault import Vault
from tests import processes
from tests.e2e.conftest import SETTINGS, World
from tests.e2e.tiny import nudge_checkpoint
from tests.stages.spool.spool_records import full_tokens

pytestmark = pytest.mark.vllm

CONTINUE = SETTINGS.replace("[gateway]", '[gateway]\nin_flight = "continue"')
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
TOKENS = 3000
NEAR = 40  # tokens looked at on each side of a turn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A line of three checkpoints; the first is served. Its deployments find nothing in flight."""
    made = World(tmp_path_factory.mktemp("long"), CONTINUE + LONG)
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
    deadline = time.monotonic() + 600
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
    admin = Admin(world.endpoint)
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

    code, reported = rtrl(world, "report")  # one outcome in six came after the horizon
    assert code == 0, reported
    timing = reported["metrics"]["left_out"]["timing"]
    assert timing == {"matured": TASKS, "waiting": 1, "too_late": 0, "events_too_late": 1}

    code, trained = rtrl(world, "train")
    assert code == 0, trained
    proof = trained["metrics"]["proof"]
    assert sorted(one["lag"] for one in proof.values()) == [0, 1, 2]
    sampled = {lag: sum(tokens.values()) for lag, tokens in enumerate((last, second, first))}
    assert {one["lag"]: one["tokens"] for one in proof.values()} == sampled
    assert all(one["p99"] < 1e-3 for one in proof.values()), proof
    assert trained["inputs"]["parent"] == third.ref


def ask(world: World, stream: bool, answers: list[httpx.Response]) -> None:
    body = {
        "model": "rtrl",
        "prompt": "def f(x):",
        "max_tokens": TOKENS,
        "min_tokens": TOKENS,
        "stream": stream,
    }
    answers.append(httpx.post(f"{world.url}/completions", json=body, headers=world.headers, timeout=600))


def logprobs(world: World, checkpoint: str, ids: list[int], begin: int, end: int) -> list[float]:
    """Of ids[begin:end] given those before, while the end may not be sampled (`min_tokens`)."""
    model = modelio.load_model(world.store.checkpoint_folder(world.store.resolve(checkpoint)))
    with torch.no_grad():
        logits = model(torch.tensor([ids[:end]])).logits[0, begin - 1 : end - 1].float()
    logits[:, model.config.eos_token_id] = -torch.inf
    chosen = torch.tensor(ids[begin:end])
    return torch.log_softmax(logits, -1).gather(1, chosen[:, None])[:, 0].tolist()


def recorded(world: World) -> set[str]:
    """Ids of all generations in the spool."""
    spool = Spool.open(world.workspace.spool_dir)
    return {generation.id for _, generation, _ in spool.generations(0, 1 << 60)}


def swap(world: World, target: Artifact) -> dict[str, Any]:
    """The engine has these weights, of which the registry knows nothing."""
    admin = Admin(world.endpoint)
    told: dict[str, Any] = admin.swap(
        line="auto",
        checkpoint=target.digest,
        path=world.store.checkpoint_folder(target),
        deployment="",
        drain_s=1,
        timeout_s=120,
    )
    return told


def swapped_under_way(world: World, target: Artifact) -> list[httpx.Response]:
    """Two long answers; while they are made the engine goes over to `target`, and nobody waits for them.

    None of them where a machine that stood still came to it when they were there.
    """
    answers: list[httpx.Response] = []
    asking = [threading.Thread(target=ask, args=(world, stream, answers)) for stream in (True, False)]
    for each in asking:
        each.start()
    admin = Admin(world.endpoint)
    while admin.served().in_flight < 2 and not answers:
        time.sleep(0.05)
    time.sleep(0.5)
    told, over = swap(world, target), list(answers)
    for each in asking:
        each.join()
    if over:
        return []
    assert told["engines"][0]["why"].endswith("2 answers went on"), told
    admin = Admin(world.endpoint)
    admin.flush_spool()
    return answers


def test_each_token_is_recorded_with_the_weights_that_sampled_it(world: World) -> None:
    live = world.store.resolve("checkpoint@live", "auto")
    for _ in range(5):
        known = recorded(world)
        if answers := swapped_under_way(world, world.second):
            break
        swap(world, live)
    assert [answer.status_code for answer in answers] == [200, 200]
    new = recorded(world) - known
    assert len(new) == 2
    assert new == {answer.headers["x-rtrl-generation-id"] for answer in answers}
    spool, vault = Spool.open(world.workspace.spool_dir), Vault.open(world.workspace.keys_dir)
    for answer in answers:
        generation, _ = spool.record(answer.headers["x-rtrl-generation-id"])
        tokens = full_tokens(spool, generation.id, vault)
        assert (generation.defect, generation.output_tokens) == ("", TOKENS)
        # nothing of it is in the registry: `rtrl serve` goes back after some seconds, which is a third span
        assert [span.checkpoint for span in generation.spans[:2]] == [live.digest, world.second.digest]
        ids, before = [*tokens.prompt.tolist(), *tokens.output.tolist()], len(tokens.prompt)
        for span in generation.spans:
            for begin in (span.start, max(span.start, span.end - NEAR)):
                end = min(begin + NEAR, span.end)
                expected = logprobs(world, span.checkpoint, ids, before + begin, before + end)
                assert tokens.logprobs[begin:end].tolist() == pytest.approx(expected, abs=2e-3)
