"""What is made of an engine's health probes and of its answers, and the requests that warm it up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stages.engine.config import EngineConfig
from stages.engine.questions import Health as Answer
from stages.errors import RtrlError
from stages.gateway.breaker import Breaker
from stages.gateway.config import BreakerConfig, GatewayConfig
from stages.gateway.health import Health
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.records import CANARY, LIVE
from stages.serving.probes import failing, probe
from stages.serving.warmup import TOKENS, warm_up
from tests.stages.gateway.rig import url_of


class Engine:
    """Answers probes with these, one after another."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def health(self) -> Answer:
        return self.answers.pop(0)


async def test_failures_in_a_row_open_the_breaker_and_one_good_answer_ends_the_row() -> None:
    health = Health()
    engine = Engine("silent", "silent", "ok", "silent", "silent", "silent")
    seen = []
    for _ in range(6):
        await probe(engine, health, failures=3)
        seen.append((health.probe_failures, health.breaker.state))
    assert seen == [(n, "closed") for n in (1, 2, 0, 1, 2)] + [(3, "open")]
    assert health.breaker.reason == "3 health probes in a row failed"


@pytest.mark.parametrize(
    ("arm", "after_s", "given_up"), [(CANARY, 0, True), (LIVE, 9, False), (LIVE, 11, True)]
)
def test_a_canary_that_fails_is_given_up_at_once_and_the_live_engine_after_a_while(
    arm: str, after_s: float, given_up: bool
) -> None:
    now = [100.0]
    health = Health(Breaker(BreakerConfig(min_requests=2), clock=lambda: now[0]))
    assert failing(health, arm, 10) == ""
    for _ in range(2):
        with health.breaker.attempt() as attempt:
            attempt.ok = False
    now[0] += after_s
    assert bool(failing(health, arm, 10)) == given_up
    assert not given_up or "2 of 2 requests failed" in failing(health, arm, 10)


@pytest.fixture
async def stub() -> AsyncIterator[tuple[StubEngine, str]]:
    engine = StubEngine()
    listener = Listener(engine, [bind_tcp("127.0.0.1", 0)], GatewayConfig(shutdown_timeout_s=1))
    await listener.start()
    yield engine, url_of(listener)
    await listener.stop()


async def test_warm_up_asks_what_it_was_told_with_the_checkpoints_own_probes(
    tmp_path: Path, stub: tuple[StubEngine, str]
) -> None:
    engine, url = stub
    document = {
        "schema": "rtrl-fingerprint/1",
        "probes": [[1, 2, 3], [4, 5]],
        "logprobs": {"parent": None, "child": [[-1.0, -2.0], [-1.0]]},
        "tensors": {"w": {"sha256": "w", "numel": 4}},
    }
    (tmp_path / "served_fingerprint.json").write_text(json.dumps(document))
    assert await warm_up(url, "key", EngineConfig(), tmp_path, 3, "rtrl") > 0
    assert [body["prompt"] for body in engine.requests] == [[1, 2, 3], [4, 5], [1, 2, 3]]
    assert {(body["model"], body["max_tokens"]) for body in engine.requests} == {("rtrl", TOKENS)}
    assert await warm_up(url, "key", EngineConfig(), tmp_path, 0, "rtrl") == 0
    assert len(engine.requests) == 3
    engine.up = False
    with pytest.raises(RtrlError, match="warm-up"):
        await warm_up(url, "key", EngineConfig(), tmp_path, 1, "rtrl")
    with pytest.raises(RtrlError, match="warm-up"):
        await warm_up("http://127.0.0.1:9", "key", EngineConfig(), tmp_path, 1, "rtrl")
