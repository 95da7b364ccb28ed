"""An engine that answers 200 with what is no answer, or with values that cannot be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.stages.gateway.rig import Rig


def entry(value: Any) -> dict[str, Any]:
    return {"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []}


def whole(**choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi"}
    logprobs = {"content": [entry(-1.0), entry(-2.0)]}
    first = {"index": 0, "finish_reason": "stop", "message": message, "token_ids": [7, 8]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choices = [first | {"logprobs": logprobs} | choice]
    return {"id": "x", "choices": choices, "usage": usage, "prompt_token_ids": [1, 2, 3]}


FIRST = {"choices": [{"index": 0, "delta": {"role": "assistant"}}], "prompt_token_ids": [1, 2, 3]}


def piece(**choice: Any) -> dict[str, Any]:
    fields = {"index": 0, "delta": {"content": "h"}, "token_ids": [7], "logprobs": {"content": [entry(-1)]}}
    return {"choices": [fields | {"finish_reason": None} | choice]}


LAST = piece(delta={"content": "i"}, finish_reason="stop")


def answers(rig: Rig, value: Any) -> None:
    """From now on the engine answers every request with this; a list streamed, piece by piece."""

    async def generate(chat: bool, body: dict[str, Any], scope: Any, send: Any) -> None:
        if body.get("stream"):
            parts = [b"data: " + orjson.dumps(event) + b"\n\n" for event in value] + [b"data: [DONE]\n\n"]
        else:
            parts = [value if isinstance(value, bytes) else orjson.dumps(value)]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    rig.stub._generate = generate  # type: ignore[method-assign]


NO_ANSWERS: list[Any] = [
    b"<html>", b"", [1], {}, {"choices": None}, {"choices": [5]}, {"choices": "a"}, {"error": {"code": 500}},
    whole(message="hi"), whole(message={"content": 5}), whole(message={"content": [{"text": "x"}]}),
    whole(token_ids="ab"), whole(token_ids={"a": 1}), whole(logprobs=[-1, -2]),
    whole(logprobs={"content": [{"token": "x"}, {"token": "y"}]}), whole(logprobs={"content": "ab"}),
    whole(finish_reason=3), whole(finish_reason=None), whole() | {"usage": "many"},
    whole() | {"prompt_token_ids": "abc"}, whole() | {"choices": whole()["choices"] * 2},
]  # fmt: skip


async def test_what_is_no_answer_is_given_to_nobody_and_not_recorded(rig: Rig) -> None:
    for value in NO_ANSWERS[:15]:
        answers(rig, value)
        answer = await rig.chat("x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_error"), value
    rig.served.health.breaker.reset()  # the engine is to blame
    for value in NO_ANSWERS[15:]:
        answers(rig, value)
        answer = await rig.chat("x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_error"), value
    assert rig.served.health.breaker.counted() == (6, 6)
    assert rig.generations() == []
    assert rig.served.gate.in_flight == 0


@pytest.mark.parametrize(
    ("choice", "defect"),
    [
        ({"token_ids": [1.5, 2.5]}, "ids_malformed"),
        ({"token_ids": [True, False]}, "ids_malformed"),
        ({"token_ids": [-1, 2]}, "ids_malformed"),
        ({"token_ids": [1 << 31, 2]}, "ids_malformed"),
        ({"token_ids": [1 << 63, 2]}, "ids_malformed"),
        ({"token_ids": [None, 2]}, "ids_malformed"),
        ({"token_ids": [[1], [2]]}, "ids_malformed"),
        ({"token_ids": [[1], [2, 3]]}, "ids_malformed"),
        ({"logprobs": {"content": [entry(None), entry(-1.0)]}}, "logprobs_not_finite"),
        ({"logprobs": {"content": [entry("-1"), entry(-1.0)]}}, "logprobs_not_finite"),
        ({"logprobs": {"content": [entry(-1e300), entry(-1.0)]}}, "logprobs_not_finite"),
        ({"logprobs": {"content": [entry(-9999.0), entry(-1.0)]}}, "logprobs_not_finite"),
        ({"logprobs": {"content": [entry(0.5), entry(-1.0)]}}, "logprobs_positive"),
        ({"logprobs": {"content": [entry(1e-7), entry(0.0)]}}, ""),
        ({"logprobs": {"content": [entry(-9998.0), entry(-1)]}}, ""),
    ],
)
async def test_values_that_cannot_be_are_recorded_as_defects(
    rig: Rig, choice: dict[str, Any], defect: str
) -> None:
    answers(rig, whole(**choice))
    assert (await rig.chat("x")).status_code == 200
    streamed = {**choice, "delta": {"content": "hi"}, "finish_reason": "stop"}
    answers(
        rig,
        [FIRST, piece(**({"token_ids": [7, 8], "logprobs": whole()["choices"][0]["logprobs"]} | streamed))],
    )
    assert "[DONE]" in (await rig.chat("x", stream=True)).text
    assert [one.defect for one in rig.generations()] == [defect, defect]
    for one in rig.generations():
        rig.payload(one.id)


@pytest.mark.parametrize(
    "event",
    [
        5, [1], None, {"choices": [5]}, {"choices": "abc"}, piece(delta="x"), piece(delta={"content": 5}),
        piece(token_ids="a"), piece(token_ids=7), piece(logprobs=[1]), piece(finish_reason=4), piece(index=1),
        piece(logprobs={"content": [{"token": "x"}]}), {"choices": [], "usage": "x"},
        piece(finish_reason="abort"), piece(finish_reason="error"),
    ],
)  # fmt: skip
async def test_a_stream_with_what_is_no_piece_does_not_end_as_if_whole(rig: Rig, event: Any) -> None:
    answers(rig, [FIRST, piece(), event])
    answer = await rig.chat("x", stream=True)
    assert "[DONE]" not in answer.text
    assert '"code":"engine_lost"' in answer.text
    (one,) = rig.generations()
    assert (one.defect, one.finish_reason) == ("engine_lost", "error")
    assert rig.served.gate.in_flight == 0


async def test_a_stream_that_gives_no_reason_for_its_end_is_not_whole(rig: Rig) -> None:
    answers(rig, [FIRST, piece(), piece()])
    answer = await rig.chat("x", stream=True)
    assert "[DONE]" not in answer.text
    assert '"code":"engine_lost"' in answer.text
    answers(rig, [FIRST, piece(), LAST])
    assert "[DONE]" in (await rig.chat("x", stream=True)).text


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_an_answer_that_somebody_stopped_in_the_engine_is_not_whole(rig: Rig, reason: str) -> None:
    answers(rig, whole(finish_reason=reason))
    answer = await rig.chat("x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_lost")
    (one,) = rig.generations()
    assert (one.defect, one.finish_reason, one.output_tokens) == ("engine_lost", reason, 2)


async def test_a_call_that_the_engine_cut_is_no_broken_one(rig: Rig) -> None:
    """It cost the episode's other answers what a broken call costs; in a stream it was none."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    text = '<tool_call>{"name": "gone", "arguments": {}}</tool_call><tool_call>{"name": "look", "argu'
    answers(rig, whole(finish_reason="abort", message={"role": "assistant", "content": text}))
    await rig.chat("x", tools=tools)
    (one,) = rig.generations()
    assert [call.error for call in one.tool_calls] == ["unknown_tool"]


@pytest.mark.parametrize(("fields", "counted"), [({"response_format": {"type": "json_object"}}, 0), ({}, 3)])
async def test_a_grammar_that_fails_behind_the_first_piece_does_not_close_the_engine(
    rig: Rig, fields: dict[str, Any], counted: int
) -> None:
    """vLLM tells of one after the piece with the role: twenty such requests, and nobody was answered."""
    answers(rig, [FIRST, {"error": {"message": "no", "code": 500}}])
    for _ in range(3):
        assert "engine_lost" in (await rig.chat("x", stream=True, **fields)).text
    assert rig.served.health.breaker.counted() == (counted, counted)
