"""A day of simulated people against a real gateway (the engine is the stub): what arrives in the spool.

The stub engine repeats what a request tells it, so every model call of an episode gives the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import replace

import pytest

from cursorbench.errors import DependencyDownError, UsageError
from cursorbench.harness import call_parser
from evals.population import client as population_client
from evals.population import people, simulate
from evals.population.people import DAY_S, FIRST_DAY
from evals.population.simulate import Traffic
from tests.stages.gateway.rig import running

USERS, REQUESTS = 10, 40


def scripted(case):
    """The case with the answer the stub is to give: right edits, questions, broken calls, by kind."""
    goal = case.intent.goal
    if case.kind == "vague":
        said = "Which value?"
    elif case.kind == "beyond":
        said = '<tool_call>{"name": "edit_file", "argum'
    else:
        said = call_parser.render("edit_file", {"path": case.path, "old": case.before, "new": goal})
    return replace(case, text=f"{case.text}\nstub:say {said}")


@pytest.fixture
def scripts(monkeypatch):
    def day_of(*args):
        return [[scripted(case) for case in cases] for cases in people.day_of(*args)]

    monkeypatch.setattr(simulate, "day_of", day_of)
    monkeypatch.setattr("evals.population.episode.MAX_TOKENS", 5000)  # the stub's tokens are bytes


@pytest.mark.usefixtures("scripts")
async def test_a_day_leaves_generations_and_events(tmp_path):
    seen = []
    async with running(tmp_path, client_clock=True) as rig:
        traffic = Traffic(rig.url, rig.key, USERS, REQUESTS, day=1, concurrency=8)
        summary = await simulate.simulate(traffic, seen.append)
        generations, events = rig.generations(), rig.events()
    assert sum(seen) == REQUESTS
    assert summary.planned == REQUESTS
    assert summary.refused == 0
    assert summary.outcomes["right"] >= 20
    assert summary.figures["edit_persistence"].value > 0.85
    assert summary.figures["invalid_calls"].value > 0.0
    planned = {f"train-0-{index}" for index in range(USERS)}
    assert {generation.user for generation in generations} <= planned
    assert len({generation.episode for generation in generations}) == summary.episodes
    assert summary.episodes > REQUESTS  # a question answered is an episode more
    start = (FIRST_DAY + DAY_S) * 1000
    assert all(start < generation.at < start + 1.2 * DAY_S * 1000 for generation in generations)
    types = Counter(event.type for event in events)
    assert types["edit_applied"] == types["edit_survival"] / 2
    assert types["user_message"] > 0.5 * REQUESTS
    assert types["session_closed"] == len({generation.session for generation in generations})
    known = {generation.id for generation in generations}
    assert {event.generation_id for event in events} <= known
    assert len({event.id for event in events}) == len(events)
    by_id = {generation.id: generation for generation in generations}
    assert all(event.at >= by_id[event.generation_id].at for event in events)
    assert max(event.at for event in events) > max(g.at for g in generations) + 3_600_000


@pytest.mark.usefixtures("scripts")
async def test_an_answer_goes_on_in_the_same_session_as_an_episode_of_its_own(tmp_path):
    async with running(tmp_path, client_clock=True) as rig:
        rig.stub.requests = deque()  # all of them: which come last depends on who is served first
        await simulate.simulate(Traffic(rig.url, rig.key, USERS, REQUESTS, concurrency=8))
        asked = [[message["role"] for message in body["messages"]] for body in rig.stub.requests]
    assert ["system", "user", "assistant", "user"] in asked


@pytest.mark.parametrize(
    ("sampling", "temperature"), [({}, 1.0), ({"temperature": 0.7}, 0.7)], ids=["default", "configured"]
)
async def test_people_get_the_temperature_that_the_gateway_serves_with(tmp_path, sampling, temperature):
    async with running(tmp_path, sampling=sampling) as rig:
        await simulate.simulate(Traffic(rig.url, rig.key, 2, 4))
        recorded = {generation.sampling.temperature for generation in rig.generations()}
        assert recorded == {temperature}
        assert {body["temperature"] for body in rig.stub.requests} == {temperature}


async def test_a_wrong_key_is_said(tmp_path):
    async with running(tmp_path) as rig:
        with pytest.raises(UsageError) as caught:
            await simulate.simulate(Traffic(rig.url, "wrong", 2, 2))
    assert "key" in caught.value.message


async def test_nobody_there_is_exit_13():
    with pytest.raises(DependencyDownError) as caught:
        await simulate.simulate(Traffic("http://127.0.0.1:1", "key", 2, 2, patience_s=0.2))
    assert caught.value.code == 13
    assert caught.value.hint


@pytest.mark.usefixtures("scripts")
async def test_a_short_absence_is_waited_out(tmp_path):
    async with running(tmp_path) as rig:

        async def away():
            await asyncio.sleep(0.2)
            rig.stub.up = False
            await asyncio.sleep(0.4)
            rig.stub.up = True

        pause = asyncio.create_task(away())
        summary = await simulate.simulate(Traffic(rig.url, rig.key, USERS, REQUESTS, concurrency=4))
        await pause
    assert summary.episodes >= REQUESTS


@pytest.mark.usefixtures("scripts")
async def test_a_service_that_stays_away_ends_the_day(tmp_path):
    async with running(tmp_path) as rig:

        def dies(n):
            rig.stub.up = False

        traffic = Traffic(rig.url, rig.key, USERS, REQUESTS, concurrency=4, patience_s=0.3)
        with pytest.raises((DependencyDownError, ExceptionGroup)) as told:  # Python before 3.11.4: in a group
            await simulate.simulate(traffic, dies)
    alone = told.value.exceptions[0] if isinstance(told.value, ExceptionGroup) else told.value
    assert isinstance(alone, DependencyDownError)


async def test_the_address_that_serve_prints(tmp_path):
    async with running(tmp_path) as rig:
        for url in (f"{rig.url}/v1", f"{rig.url}/v1/", f"{rig.url}/"):
            await simulate.simulate(Traffic(url, rig.key, 1, 1))
        with pytest.raises(UsageError, match="names no model: HTTP 404"):
            await simulate.simulate(Traffic(f"{rig.url}/elsewhere", rig.key, 1, 1))
    with pytest.raises(UsageError, match="is no address"):
        await simulate.simulate(Traffic("127.0.0.1:8100", "key", 1, 1))


async def test_nobody_there_is_said_soon(monkeypatch):
    monkeypatch.setattr(population_client, "FIRST_PATIENCE_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(DependencyDownError):
        await simulate.simulate(Traffic("http://127.0.0.1:1/v1", "key", 1, 1))
    assert time.monotonic() - begun < population_client.PATIENCE_S - 5
