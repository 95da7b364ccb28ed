"""How many are let in, what becomes of them when the gateway stops, and what is said of each in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import httpx
import pytest

from stages.gateway import logs
from stages.gateway.admission import Admission
from stages.gateway.errors import ApiError
from stages.gateway.gate import CutShortError, Gate
from stages.gateway.logs import JsonLines
from stages.gateway.shares import NOBODY
from tests.stages.gateway.rig import Rig, running, until


def test_who_waits_is_told_how_long(  # hand-computed
) -> None:
    admission = Admission(running=2, queue=4, streams=1)
    admission._mean_s = 3.0
    for _ in range(6):
        admission.admit(NOBODY).__enter__()
    with pytest.raises(ApiError) as caught:
        admission.admit(NOBODY)
    assert (caught.value.status, caught.value.code) == (429, "queue_full")
    assert caught.value.retry_after == 8  # 4 wait, it would be the 5th: 5 * 3 s, two at a time
    admission.left(3.0, NOBODY, streamed=False)
    admission.admit(NOBODY)


@pytest.mark.parametrize("kind", ["held", "exclusive"])
async def test_a_gate_that_is_shut_stays_shut_after_a_swap(kind: str) -> None:
    gate, error = Gate(), ApiError(503, "service_unavailable", "shutting_down", "it ends")
    async with gate.held() if kind == "held" else gate.exclusive(1):
        gate.shut(error)
    with pytest.raises(CutShortError) as caught:
        async with gate.sampling():
            pass
    assert caught.value.error is error
    with pytest.raises(ApiError):
        await gate.enter(1)


async def test_beyond_the_queue_is_429_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path, engine_connections=2, max_queue=3) as rig:
        asked = [asyncio.create_task(rig.chat(rig.hold(0))) for _ in range(9)]
        await until(lambda: sum(each.done() for each in asked) == 4)
        rig.let_go()
        answers = await asyncio.gather(*asked)
        accepted = [a for a in answers if a.status_code == 200]
        refused = [a for a in answers if a.status_code == 429]
        assert (len(accepted), len(refused)) == (5, 4)
        assert {a.json()["error"]["code"] for a in refused} == {"queue_full"}
        assert all(1 <= int(a.headers["retry-after"]) <= 60 for a in refused)
        assert {g.id for g in rig.generations()} == {a.json()["id"] for a in accepted}
        assert (await rig.chat("x")).status_code == 200
        assert rig.gateway.admission.accepted == 0


async def test_streams_have_a_bound_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path, max_streams=1) as rig:
        first = asyncio.create_task(rig.chat(rig.hold(4), stream=True))
        await until(lambda: rig.gateway.admission.streams.taken == 1)
        refused = await rig.chat("x", stream=True)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_streams")
        assert (await rig.chat("x")).status_code == 200
        rig.let_go()
        assert "[DONE]" in (await first).text
        assert rig.gateway.admission.streams.taken == 0


async def test_draining_finishes_what_was_accepted(rig: Rig) -> None:
    whole = asyncio.create_task(rig.chat(rig.hold(0)))
    stream = asyncio.create_task(rig.chat(rig.hold(4), stream=True))
    await until(lambda: rig.served.gate.in_flight == 2)
    draining = asyncio.create_task(rig.gateway.drain(60))
    await asyncio.sleep(0)
    late = await rig.chat("x")
    assert (late.status_code, late.json()["error"]["code"]) == (503, "shutting_down")
    assert (late.headers["connection"], int(late.headers["retry-after"]) > 0) == ("close", True)
    assert (await rig.http.get("/health")).status_code == 503
    assert "rtrl_draining 1.0" in (await rig.admin.get("/metrics")).text
    event = await rig.event("e1", "gen_" + "0" * 32)
    assert event["pending"] == 1, "what users say is taken to the end"
    rig.let_go()
    assert (await whole).status_code == 200
    assert (await stream).text.endswith("data: [DONE]\n\n")
    assert await draining == 0
    assert len(rig.generations()) == 2


async def test_what_takes_too_long_is_cut_short_told_and_recorded(rig: Rig) -> None:
    whole = asyncio.create_task(rig.chat(rig.hold(0)))
    stream = asyncio.create_task(rig.chat(rig.hold(4), stream=True))
    await until(lambda: rig.served.gate.in_flight == 2 and rig.sampled(4))
    assert await rig.gateway.drain(0.05) == 2
    answer = await whole
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert '"code":"shutting_down"' in (await stream).text
    assert "[DONE]" not in (await stream).text
    assert [g.finish_reason for g in rig.generations()] == ["abort"] * 2


async def test_who_waits_for_new_weights_while_it_drains_is_served(rig: Rig) -> None:
    rig.may_load.clear()
    folder = rig.root / "b"
    folder.mkdir()
    swap = asyncio.create_task(
        rig.admin.post("/admin/swap", json={"checkpoint": "sha256:bbb", "path": str(folder)})
    )
    await until(lambda: rig.served.gate.closed)
    held = asyncio.create_task(rig.chat("x"))
    await until(lambda: rig.served.gate.waiting == 1)
    draining = asyncio.create_task(rig.gateway.drain(60))
    await until(lambda: rig.gateway.admission.draining)
    rig.may_load.set()
    assert await draining == 0
    assert (await held).status_code == 200
    assert (await swap).status_code == 200
    (generation,) = rig.generations()
    assert generation.spans[0].checkpoint == "sha256:bbb"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("123e4567-e89b-12d3-a456-426614174000", True),
        ("req_0123456789abcdef01234567", True),
        ("ada@example.org", False),
        ("abc", False),
        ("a" * 65, False),
    ],
)
async def test_request_ids(rig: Rig, sent: str, kept: bool) -> None:
    good = await rig.chat("x", headers={"x-request-id": sent})
    bad = await rig.chat("", headers={"x-request-id": sent}, temperature=9)
    stream = await rig.chat("stub:die=4", headers={"x-request-id": sent}, stream=True)
    ids = [a.headers["x-request-id"] for a in (good, bad, stream)]
    assert bad.json()["request_id"] == ids[1]
    assert json.loads(stream.text.split("data: ")[-1])["request_id"] == ids[2]
    if kept:
        assert set(ids) == {sent}
    else:
        assert len(set(ids)) == 3
        assert all(one.startswith("req_") for one in ids)


async def test_each_request_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rtrl.gateway")
    async with running(tmp_path, log_requests="all") as rig:
        good = await rig.chat("PRIVATE", user="PRIVATE", headers={"x-rtrl-session": "PRIVATE"})
        await rig.http.get("/PRIVATE")
        rig.stub.up = False
        failed: httpx.Response = await rig.chat("PRIVATE")
    lines = [json.loads(JsonLines().format(r)) for r in caplog.records if r.getMessage() == "request"]
    assert "PRIVATE" not in json.dumps(lines)
    assert [(x["route"], x["status"], x["level"], x["code"]) for x in lines] == [
        ("/v1/chat/completions", 200, "info", ""),
        ("other", 404, "info", "not_found"),
        ("/v1/chat/completions", 503, "warning", "engine_error"),
    ]
    assert lines[0]["generation"] == good.json()["id"]
    assert lines[2]["request_id"] == failed.headers["x-request-id"] == failed.json()["request_id"]
    assert lines[0]["ms"] > 0
    assert lines[0]["key"].startswith("key_")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_request_that_is_to_be_logged_gets_its_line_in_both_forms(
    form: logs.Format, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`log_requests = "all"` gave no line as text, which is the default."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    levels = {logger: logger.level for logger in (logging.getLogger(), logging.getLogger("rtrl.gateway"))}
    try:
        logs.configure(form)
        logs.event("request", status=200)
        logs.event("engine", state="ready")  # a person at a terminal was told by `say`
        logs.event("engine", logging.ERROR, state="down")
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    assert ("200" in lines[0], "down" in lines[-1], len(lines)) == (True, True, 2 if form == "text" else 3)


async def test_updates_under_load_drop_nothing(rig: Rig) -> None:
    """Whole answers and streams, more than the engine takes at a time, while weights change four times."""
    rig.load_s = 0.05
    folders = [rig.root / name for name in "bcde"]
    for folder in folders:
        folder.mkdir()

    async def client(number: int) -> list[httpx.Response]:
        words = "stub:gap=0.005 stub:tokens=20" if number % 2 else "stub:delay=0.05"
        return [await rig.chat(words, stream=bool(number % 2)) for _ in range(6)]

    clients = [asyncio.create_task(client(number)) for number in range(24)]
    for folder in folders:
        await asyncio.sleep(0.1)
        body = {"checkpoint": f"sha256:{folder.name}", "path": str(folder)}
        assert (await rig.admin.post("/admin/swap", json=body)).status_code == 200
    answers = [answer for each in await asyncio.gather(*clients) for answer in each]
    assert [answer.status_code for answer in answers] == [200] * 144
    assert all("[DONE]" in a.text for a in answers if "event-stream" in a.headers["content-type"])
    recorded = {g.id: g.spans[0].checkpoint for g in rig.generations()}
    assert {a.headers["x-rtrl-generation-id"] for a in answers} == set(recorded)
    assert len(set(recorded.values())) > 1
