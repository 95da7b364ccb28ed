"""Weight swaps: no token is attributed to weights that did not sample it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stages.gateway.errors import ApiError
from stages.gateway.gate import DrainTimeoutError, Gate
from tests.stages.gateway.rig import Rig, running, until


async def swap(rig: Rig, name: str, **fields: Any) -> Any:
    path = rig.root / name
    path.mkdir(exist_ok=True)
    body = {"checkpoint": f"sha256:{name}", "path": str(path), "deployment": f"d-{name}", **fields}
    return await rig.admin.post("/admin/swap", json=body)


def spans(rig: Rig) -> list[str]:
    return [g.spans[0].checkpoint for g in rig.generations()]


async def test_a_swap_changes_what_is_served_and_recorded(rig: Rig) -> None:
    await rig.chat("x")
    answer = (await swap(rig, "bbb")).json()
    assert (answer["previous"], answer["served"]["checkpoint"]) == ("sha256:aaa", "sha256:bbb")
    assert rig.loaded == [rig.root / "bbb"]
    await rig.chat("x")
    assert spans(rig) == ["sha256:aaa", "sha256:bbb"]
    assert [g.deployment for g in rig.generations()] == ["d1", "d-bbb"]
    served = (await rig.admin.get("/admin/served")).json()
    assert (served["checkpoint"], served["deployment"], served["engine"]) == ("sha256:bbb", "d-bbb", "ready")
    assert (await swap(rig, "bbb")).status_code == 200, "again: loaded and verified again"


@pytest.mark.parametrize("stream", [False, True])
async def test_those_in_flight_finish_on_the_old_weights_and_others_wait(rig: Rig, stream: bool) -> None:
    rig.stub.steps.pause(still=True)
    old = asyncio.create_task(rig.chat("x", stream=stream))
    await until(lambda: len(rig.stub.requests) == 1)
    swapping = asyncio.create_task(swap(rig, "bbb"))
    await until(lambda: rig.served.gate.closed)
    new = asyncio.create_task(rig.chat("x"))
    await until(lambda: rig.served.gate.waiting == 1)
    assert (rig.loaded, len(rig.stub.requests)) == ([], 1)
    rig.stub.steps.pause(still=False)
    assert [a.status_code for a in await asyncio.gather(old, swapping, new)] == [200, 200, 200]
    assert spans(rig) == ["sha256:aaa", "sha256:bbb"]


async def test_a_slow_reader_does_not_hold_up_a_swap(rig: Rig) -> None:
    body = {"model": "rtrl", "stream": True, "messages": [{"role": "user", "content": "stub:tokens=20000"}]}
    async with rig.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        reading = answer.aiter_raw()
        await anext(reading)  # then reads no more
        assert (await swap(rig, "bbb")).status_code == 200
        (generation,) = rig.generations()
        assert (generation.output_tokens, generation.spans[0].checkpoint) == (20_001, "sha256:aaa")


@pytest.mark.parametrize("patience", [{}, {"limit_s": 20, "cut": True}])
async def test_weights_that_do_not_load_leave_the_old_ones(rig: Rig, patience: dict[str, Any]) -> None:
    """Also those of a rollback, which does not wait for a slow engine: this one answers, and says no."""
    rig.bad = {rig.root / "bbb"}
    answer = await swap(rig, "bbb", **patience)
    body = answer.json()
    assert (answer.status_code, body["error"]["code"]) == (409, "swap_failed")
    assert (body["error"]["kind"], body["error"]["exit_code"]) == ("integrity", 12)
    assert body["served"]["checkpoint"] == "sha256:aaa"
    assert rig.loaded == [rig.root / "a"], "the old weights were loaded again"
    await rig.chat("x")
    assert spans(rig) == ["sha256:aaa"]


async def test_nothing_is_served_when_the_way_back_fails_too(rig: Rig) -> None:
    rig.bad = {rig.root / "bbb", rig.root / "a"}
    answer = await swap(rig, "bbb")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "engine_unknown")
    refused = await rig.chat("x")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unknown")
    assert rig.generations() == []
    rig.served.engine = "ready"  # whoever runs the engine has started it again
    assert (await rig.chat("x")).status_code == 200


async def test_another_swap_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command that was killed, say: it goes on, and the same command again finds it under way."""
    monkeypatch.setattr("stages.gateway.haste.OTHERS_S", 60.0)
    rig.stub.steps.pause(still=True)
    long = asyncio.create_task(rig.chat("x"))
    await until(lambda: rig.served.gate.in_flight == 1)
    first = asyncio.create_task(swap(rig, "bbb"))
    await until(lambda: rig.served.gate.closed)
    second = asyncio.create_task(swap(rig, "ccc"))
    await until(lambda: rig.waits_for_a_swap)
    rig.stub.steps.pause(still=False)
    answers = await asyncio.gather(first, second)
    assert [each.status_code for each in answers] == [200, 200]
    assert rig.loaded == [rig.root / "bbb", rig.root / "ccc"]
    assert rig.served.checkpoint.digest == "sha256:ccc"
    assert (await long).status_code == 200


async def test_one_swap_at_a_time_and_a_bounded_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.gateway.haste.OTHERS_S", 0.05)
    async with running(tmp_path, drain_timeout_s=0.2) as rig:
        rig.stub.steps.pause(still=True)
        long = asyncio.create_task(rig.chat("x"))
        await until(lambda: rig.served.gate.in_flight == 1)
        error = (await swap(rig, "bbb")).json()["error"]
        assert (error["code"], rig.loaded, rig.served.gate.closed) == ("drain_timeout", [], False)
        first = asyncio.create_task(swap(rig, "bbb", drain_timeout_s=60))
        await until(lambda: rig.served.gate.closed)
        assert (await swap(rig, "ccc")).json()["error"]["code"] == "swap_running"
        rig.stub.steps.pause(still=False)
        assert ((await first).status_code, (await long).status_code) == (200, 200)
        assert rig.loaded == [rig.root / "bbb"]
        (generation,) = rig.generations()
        assert f"1 generation was still running after 0.2 s ({generation.id} for " in error["message"]


async def test_nobody_waits_for_a_key_in_a_swaps_way(rig: Rig) -> None:
    """A user's first request waits for another process that writes keys: the swap does not wait for it."""
    assert (await rig.chat("x", user="known")).status_code == 200
    with closing(sqlite3.connect(rig.root / "keys" / "vault.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        new = asyncio.create_task(rig.chat("x", user="new"))
        await until(lambda: rig.waits_for_a_key)
        answers = await rig.chat("x", user="known"), await swap(rig, "bbb")
        assert ([each.status_code for each in answers], new.done()) == ([200, 200], False)
        other.execute("ROLLBACK")
    assert (await new).status_code == 200
    assert spans(rig) == ["sha256:aaa", "sha256:aaa", "sha256:bbb"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_swap_that_cannot_wait_cuts_those_in_flight_short(rig: Rig, stream: bool) -> None:
    old = asyncio.create_task(rig.chat(rig.hold(4), stream=stream))
    await until(lambda: rig.sampled(4))
    answer = await swap(rig, "bbb", drain_timeout_s=0.2, cut=True)
    assert answer.status_code == 200
    cut = await old
    assert (cut.status_code, "weights_updating" in cut.text) == (200 if stream else 503, True)
    assert "[DONE]" not in cut.text
    (generation,) = rig.generations()
    assert generation.finish_reason == "abort"
    assert generation.defect == ("" if stream else "no_output")
    assert (generation.output_tokens > 0) == stream
    assert [span.checkpoint for span in generation.spans] == (["sha256:aaa"] if stream else [])
    assert (rig.served.gate.in_flight, rig.served.gate.closed) == (0, False)
    assert (await rig.chat("x")).status_code == 200
    assert rig.generations()[-1].spans[0].checkpoint == "sha256:bbb"


async def test_a_stream_that_had_not_begun_gets_an_error_status(rig: Rig) -> None:
    old = asyncio.create_task(rig.chat(rig.hold(0), stream=True))
    await until(lambda: len(rig.stub.requests) == 1)
    assert (await swap(rig, "bbb", drain_timeout_s=0.1, cut=True)).status_code == 200
    cut = await old
    assert (cut.status_code, cut.json()["error"]["code"]) == (503, "weights_updating")
    assert [(g.finish_reason, g.defect) for g in rig.generations()] == [("abort", "no_output")]


async def test_a_request_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path, hold_timeout_s=0.1) as rig:
        async with rig.served.gate.exclusive(1):
            answer = await rig.chat("x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "weights_updating")


async def test_a_swap_goes_on_when_the_one_who_asked_leaves(rig: Rig) -> None:
    rig.load_s = 0.3
    asking = asyncio.create_task(swap(rig, "bbb"))
    await until(lambda: rig.served.engine == "unknown")
    asking.cancel()
    await until(lambda: rig.served.engine == "ready")
    assert rig.served.checkpoint.digest == "sha256:bbb"


async def test_what_a_swap_needs(rig: Rig) -> None:
    for fields in (
        {"checkpoint": ""},
        {"path": "relative"},
        {"path": "/does/not/exist"},
        {"drain_timeout_s": 0},
        {"cut": "yes"},
    ):
        assert (await swap(rig, "bbb", **fields)).status_code == 400
    assert (await swap(rig, "bbb", line="other")).json()["error"]["code"] == "other_line"
    rig.served.engine = "down"
    assert (await swap(rig, "bbb")).status_code == 503


async def test_time_in_which_nothing_ran_is_no_patience() -> None:
    """As on a machine that stands still for a while: answers and the end of patience are due at once then."""
    gate = Gate()
    await gate.enter(1)

    async def sample() -> None:
        for _ in range(4):
            await asyncio.sleep(0.01)
        gate.leave()

    sampling = asyncio.create_task(sample())
    asyncio.get_running_loop().call_soon(time.sleep, 0.7)
    async with gate.exclusive(0.6):
        assert sampling.done()


async def test_the_gate_by_itself() -> None:
    gate = Gate()
    await gate.enter(1)
    with pytest.raises(DrainTimeoutError):
        async with gate.exclusive(0.02):
            raise AssertionError("never alone")
    gate.leave()
    async with gate.exclusive(0.1):
        assert gate.closed
        with pytest.raises(ApiError):
            await gate.enter(0.02)
    assert not gate.closed
    assert (gate.in_flight, gate.waiting) == (0, 0)
