"""The disk of the spool is full: no client gets an answer that looks whole and is not recorded."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from stages.gateway.logs import Text
from stages.spool import SpoolFullError, SpoolWriter
from tests.stages.gateway.rig import Rig, until


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def full(*_: Any) -> int:
        raise SpoolFullError("the spool cannot be written: No space left on device")

    monkeypatch.setattr(SpoolWriter, "append_generation", full)
    return monkeypatch


@pytest.mark.parametrize("stream", [False, True])
async def test_no_answer_without_a_record(rig: Rig, stream: bool, full_disk: pytest.MonkeyPatch) -> None:
    answer = await rig.chat("stub:say hidden", stream=stream)
    if stream:
        assert "capture_unavailable" in answer.text
        assert "[DONE]" not in answer.text
        assert '"finish_reason":"stop"' not in answer.text
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "capture_unavailable")
        assert "hidden" not in answer.text
    full_disk.undo()
    assert (await rig.chat("x", stream=stream)).status_code == 200
    metrics = (await rig.admin.get("/metrics")).text
    assert 'rtrl_unrecorded_total{reason="spool_full"} 1.0' in metrics


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("how", ["the engine dies", "a swap cuts it"])
async def test_a_stream_that_is_cut_does_not_end_as_if_whole(rig: Rig, how: str) -> None:
    if how == "the engine dies":
        cut = await rig.chat("stub:die=4", stream=True)
    else:
        asking = asyncio.create_task(rig.chat(rig.hold(4), stream=True))
        await until(lambda: rig.sampled(4))
        async with rig.served.gate.exclusive(0.1, cut=True):
            cut = await asking
    assert cut.status_code == 200, "pieces were sent"
    last = json.loads(cut.text.split("\n\n")[-2].removeprefix("data: "))
    assert last["error"]["code"] == "capture_unavailable"
    assert "[DONE]" not in cut.text


@pytest.mark.usefixtures("full_disk")
async def test_a_stream_that_had_put_out_nothing_gets_an_error_status(rig: Rig) -> None:
    body = {"model": "rtrl", "prompt": "stub:tokens=0", "stream": True}
    answer = await rig.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "capture_unavailable")


async def test_the_log_says_why_once_and_that_it_is_over(
    rig: Rig, full_disk: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rtrl.gateway")
    for stream in (True, False, True):  # of a stream that is cut the log has no line: its status was 200
        await rig.chat("x", stream=stream)
    full_disk.undo()
    for _ in range(2):
        assert (await rig.chat("x")).status_code == 200
    told = [Text().format(record).split("Z ", 1)[1] for record in caplog.records if record.msg == "capture"]
    why = "the spool cannot be written: No space left on device"
    assert told == [f"warning capture state=refused reason={why}", "warning capture state=well"]
