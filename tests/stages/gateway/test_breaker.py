"""The circuit breaker by hand-computed numbers, and before an engine that fails."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stages.gateway.arms import Arm
from stages.gateway.breaker import Breaker
from stages.gateway.config import BreakerConfig, GatewayConfig
from stages.gateway.engine_answer import read_whole
from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import ApiError
from stages.gateway.health import Health
from stages.gateway.pool import Pool
from stages.gateway.served import Checkpoint, ServedState
from tests.stages.gateway.rig import running


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(breaker: Breaker, *outcomes: bool | None) -> None:
    for ok in outcomes:
        with breaker.attempt() as attempt:
            attempt.ok = ok


def refused(breaker: Breaker) -> int:
    """Retry-After of the refusal."""
    with pytest.raises(ApiError) as caught, breaker.attempt():
        pass
    assert (caught.value.status, caught.value.code) == (503, "engine_failing")
    assert caught.value.retry_after is not None
    return caught.value.retry_after


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, told: list[str], **settings: float) -> Breaker:
    config = BreakerConfig(**({"window_s": 10, "min_requests": 4, "error_rate": 0.5} | settings))
    return Breaker(config, lambda state, _: told.append(state), clock)


def test_it_opens_at_the_rate_and_not_below_the_least_number(clock: Clock) -> None:
    told: list[str] = []
    breaker = made(clock, told)
    asked(breaker, False, False, False)  # 3 of 3, but fewer than 4
    assert breaker.state == "closed"
    asked(breaker, True, True, True, True)  # 3 of 7
    asked(breaker, None, None)  # clients that left say nothing
    assert (breaker.state, breaker.counted()) == ("closed", (7, 3))
    asked(breaker, False)  # 4 of 8
    assert (breaker.state, breaker.opened, told) == ("open", 1, ["open"])
    assert breaker.reason == "4 of 8 requests failed within 10 s"
    assert refused(breaker) == 2


def test_what_is_older_than_the_window_does_not_count(clock: Clock) -> None:
    breaker = made(clock, [])
    asked(breaker, False, False, False)
    clock.now += 10
    asked(breaker, False)
    assert (breaker.state, breaker.counted()) == ("closed", (1, 1))


def test_trials_close_it_or_make_it_wait_twice_as_long(clock: Clock) -> None:
    told: list[str] = []
    breaker = made(clock, told, open_s=2, open_max_s=5, trials=2)
    asked(breaker, *[False] * 4)
    for pause in (2, 4, 5, 5):  # doubles up to open_max_s
        clock.now += pause - 0.5
        assert refused(breaker) == 1
        assert breaker.refusing
        clock.now += 0.5
        assert not breaker.refusing
        asked(breaker, True, False)  # one of the two trials fails
        assert breaker.state == "open"
    clock.now += 5
    asked(breaker, True, None, True)  # a trial whose client left is not one
    assert breaker.state == "closed"
    assert (breaker.opened, breaker.counted(), breaker.reason) == (5, (0, 0), "")
    assert told[-2:] == ["half_open", "closed"]


def test_no_more_than_the_trials_go_through_at_a_time(clock: Clock) -> None:
    breaker = made(clock, [], trials=1)
    breaker.trip("3 health probes failed")
    clock.now += 2
    with breaker.attempt() as first:
        refused(breaker)
        first.ok = True
    assert breaker.state == "closed"


def test_a_long_stream_is_a_trial_no_longer_than_the_pause(clock: Clock) -> None:
    """Everybody else was refused until it ended; after two minutes of that the engine was started anew."""
    breaker = made(clock, [], trials=2, open_s=2)
    breaker.trip("3 health probes failed")
    clock.now += 2
    with breaker.attempt() as one, breaker.attempt() as other:
        for attempt in (one, other, one, other):
            attempt.ok = True
            breaker.answering(attempt)
            clock.now += 0.5
        refused(breaker)
        clock.now += 0.5
        breaker.answering(one)
        assert (breaker.state, breaker.counted()) == ("half_open", (0, 0))
        breaker.answering(other)
        assert (breaker.state, breaker.failing_s) == ("closed", 0)
        one.ok = False
    assert (breaker.state, breaker.counted()) == ("closed", (2, 1)), "it breaks off later: as any request"


def test_answers_to_older_requests_are_no_trials(clock: Clock) -> None:
    breaker = made(clock, [], trials=1)
    with breaker.attempt() as old:
        breaker.trip("said so")
        clock.now += 2
        assert not breaker.refusing
        old.ok = True
    assert breaker.state == "open"
    assert breaker.failing_s == 2


async def test_where_nobody_listens_others_are_asked_first(clock: Clock, tmp_path: Path) -> None:
    config = GatewayConfig()
    breaker = Breaker(config.breaker, clock=clock)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        client = EngineClient(f"http://127.0.0.1:{taken.getsockname()[1]}", "", "rtrl", config, breaker)
        with pytest.raises(ApiError) as caught:
            await client.post("/v1/completions", b"{}", read=read_whole)
    assert caught.value.code == "engine_down"
    what = Checkpoint("sha256:a", tmp_path)
    dead, well = (
        Arm(ServedState("auto", "rtrl", what, engine="ready", name=name, health=health), client)
        for name, health in (("dead", Health(breaker=breaker)), ("well", Health()))
    )
    pool = Pool(dead)
    pool.members.append(well)
    keys = [str(number) for number in range(20)]
    assert {pool.pick(key).served.name for key in keys} == {"well"}
    assert (breaker.state, breaker.refusing) == ("closed", False), "alone it would be asked"
    clock.now += config.breaker.open_s
    assert {pool.pick(key).served.name for key in keys} == {"dead", "well"}


async def test_an_engine_that_fails_is_left_alone_and_found_again(tmp_path: Path) -> None:
    settings = {"min_requests": 4, "open_s": 1, "trials": 2}
    async with running(tmp_path, breaker=settings) as rig:
        clock = rig.served.health.breaker._clock = Clock()
        rig.stub.up = False
        codes = [(await rig.chat("x", stream=i % 2 == 0)).json()["error"]["code"] for i in range(4)]
        assert codes == ["engine_error"] * 4
        answer = await rig.chat("x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failing")
        assert int(answer.headers["retry-after"]) == 1
        assert (await rig.http.get("/health")).json()["error"]["code"] == "engine_failing"
        shown = (await rig.admin.get("/metrics")).text
        assert 'rtrl_breaker_state{arm="live"} 2.0' in shown
        assert 'rtrl_errors_total{code="engine_failing"} 2.0' in shown
        health = (await rig.admin.get("/admin/served")).json()["health"]
        assert health["breaker"]["reason"] == "4 of 4 requests failed within 10 s"
        rig.stub.up = True
        clock.now += 1
        assert [(await rig.chat("x")).status_code for _ in range(3)] == [200] * 3
        assert rig.served.health.breaker.state == "closed"
        assert (await rig.http.get("/health")).status_code == 200
        # what a request is to blame for says nothing of the engine
        for _ in range(8):
            assert (await rig.chat("stub:status=400")).status_code == 400
        assert rig.served.health.breaker.state == "closed"
        assert rig.served.gate.in_flight == rig.gateway.admission.accepted == 0


async def test_who_waits_for_an_engine_found_again_waits_for_no_whole_stream(tmp_path: Path) -> None:
    async with running(tmp_path, breaker={"open_s": 1, "trials": 1}) as rig:
        breaker = rig.served.health.breaker
        clock = breaker._clock = Clock()
        breaker.trip("said so")
        clock.now += 1
        words = "stub:tokens=200 stub:gap=0.01"
        body = {"model": "rtrl", "stream": True, "messages": [{"role": "user", "content": words}]}
        async with rig.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            pieces = answer.aiter_lines()
            await anext(pieces)
            assert (await rig.chat("x")).status_code == 503
            clock.now += 1
            more = 0
            while breaker.state != "closed":
                await anext(pieces)
                more += 1
            assert more < 100, "long before its end"
            assert (await rig.chat("x")).status_code == 200
