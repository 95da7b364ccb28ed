"""Requests that are refused, answers that go wrong: what clients are told, and what is recorded."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from stages.gateway.config import DefaultSampling
from stages.gateway.request import parse_request
from tests.stages.gateway.rig import Rig, running, until

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"echo": True}, "echo", "unsupported_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools", "invalid_value"),
    ({"tools": {}}, "tools", "invalid_value"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", ""]}, "stop", "invalid_value"),
    ({"stop": 5}, "stop", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"structured_outputs": 5}, "structured_outputs", "invalid_value"),  # a 500 of vLLM 0.32
    ({"response_format": "json"}, "response_format", "invalid_value"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_tokens": 2**31}, "max_tokens", "invalid_value"),
    ({"repetition_penalty": 1e300}, "repetition_penalty", "invalid_value"),
    ({"repetition_penalty": 1e-300}, "repetition_penalty", "invalid_value"),
    ({"presence_penalty": 1e300}, "presence_penalty", "invalid_value"),
    ({"frequency_penalty": -1e300}, "frequency_penalty", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"min_p": 1.5}, "min_p", "invalid_value"),
    ({"top_k": 2**31}, "top_k", "invalid_value"),
    ({"guided_json": {"type": "object"}}, "guided_json", "unsupported_parameter"),
    ({"guided_choice": ["a"]}, "guided_choice", "unsupported_parameter"),
    ({"chat_template_kwargs": {"a": 1, "max_length": 5}}, "chat_template_kwargs", "unsupported_parameter"),
    ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs", "unsupported_parameter"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": ["hi"]}, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
    ({"metadata": 5}, "metadata", "invalid_value"),
    ({"user": "x" * 201}, "user", "invalid_value"),
    ({"user": "a\nb"}, "user", "invalid_value"),
    ({"user": []}, "user", "invalid_value"),
    ({"user": False}, "user", "invalid_value"),
]


async def test_what_cannot_be_served_is_refused_with_a_reason(rig: Rig) -> None:
    for fields, param, code in REFUSED:
        answer = await rig.chat("x", **fields)
        assert answer.status_code == 400, fields
        error = answer.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
        assert error["message"]
    assert not rig.stub.requests
    assert rig.generations() == []


@pytest.mark.parametrize(
    ("wrong", "defect"),
    [
        ("logprobs", "logprobs_length"),
        ("ids", "logprobs_length"),
        ("noids", "no_prompt_ids"),
        ("usage", "output_length"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_lengths_that_do_not_agree_are_recorded_with_their_defect(
    rig: Rig, wrong: str, defect: str, stream: bool
) -> None:
    answer = await rig.chat(f"stub:tokens=4 stub:wrong={wrong}", stream=stream)
    assert answer.status_code == 200, "the client gets its answer"
    (generation,) = rig.generations()
    assert generation.defect == defect
    _, tokens = rig.payload(generation.id)
    if wrong == "logprobs":
        assert (len(tokens.output), len(tokens.logprobs)) == (5, 4), "neither padded nor cut"
    if wrong == "noids":
        assert len(tokens.prompt) == 0


@pytest.mark.parametrize(
    ("wrong", "defect", "kept"),
    [("experts", "routed_experts_length", True), ("experts_cut", "routed_experts_malformed", False)],
)
async def test_routed_experts_that_do_not_fit_are_recorded_with_their_defect(
    rig: Rig, wrong: str, defect: str, kept: bool
) -> None:
    answer = await rig.chat(f"stub:tokens=4 stub:experts stub:wrong={wrong}")
    assert answer.status_code == 200
    (generation,) = rig.generations()
    assert generation.defect == defect
    assert (rig.payload(generation.id)[1].experts is not None) == kept


@pytest.mark.parametrize("stream", [False, True])
async def test_context_overflow_is_told_and_recorded(rig: Rig, stream: bool) -> None:
    """The prompt is the policy's doing: it must not be able to leave the record that way."""
    answer = await rig.chat("stub:overflow", stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    (generation,) = rig.generations()
    assert (generation.finish_reason, generation.defect, generation.output_tokens) == (
        "context_overflow",
        "",
        0,
    )
    assert generation.spans == ()
    metrics = (await rig.admin.get("/metrics")).text
    assert 'rtrl_generations_total{kind="exact"} 1.0' in metrics, "nothing is wrong with it"


async def test_a_slow_engine_is_a_timeout_and_recorded(tmp_path: Any, monkeypatch: Any) -> None:
    limits: list[asyncio.Timeout] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        assert seconds == 0.2
        limits.append(asyncio.timeout(None))
        return limits[-1]

    monkeypatch.setattr("stages.gateway.engine_client.asyncio", SimpleNamespace(timeout=timeout))
    async with running(tmp_path, engine_timeout_s=0.2) as rig:
        asked = asyncio.create_task(rig.chat(rig.hold(0)))
        await until(lambda: len(rig.stub.requests) == 1)
        limits.pop().reschedule(0.0)
        answer = await asked
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        text = ""
        body = {"model": "rtrl", "stream": True, "messages": [{"role": "user", "content": rig.hold(1)}]}
        async with rig.http.stream("POST", "/v1/chat/completions", json=body) as streamed:
            async for line in streamed.aiter_lines():
                if '"content":"T"' in line:
                    limits.pop().reschedule(0.0)
                text += line
        assert '"code":"engine_timeout"' in text
        assert "[DONE]" not in text
        first, second = rig.generations()
        assert (first.finish_reason, first.defect) == ("timeout", "no_output")
        assert (second.finish_reason, second.defect, second.output_tokens) == ("timeout", "", 1)


async def test_a_prompt_without_text_is_refused_and_several_are(rig: Rig) -> None:
    for prompt in ("", [], [""], [[]], [["a"]], ["a", "b"], [[97], [98]], [True]):
        answer = await rig.http.post("/v1/completions", json={"model": "rtrl", "prompt": prompt})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b"\\ud83d", "no low surrogate in string, line 2 column 28"),
        (b"\xc3\xa9 \xe9", "no UTF-8, line 2 column 30"),
    ],
)
async def test_where_a_body_is_no_json_is_told_without_its_content(rig: Rig, wrong: bytes, why: str) -> None:
    """Half a surrogate pair, as JavaScript cuts strings: nobody finds it in a batch of a thousand events."""
    body = b'{"id": "PRIVATE",\n "data": {"text": "PRIVATE ' + wrong + b'"}}'
    for path in ("/v1/events", "/v1/chat/completions", "/v1/continue/data", "/feedback"):
        answer = await rig.http.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
        told = answer.json()["error"]["message"]
        assert told == f"the body is not valid JSON: {why}"
    traces = await rig.http.post("/v1/traces", content=b"{", headers={"content-type": "application/json"})
    assert "unexpected end" in traces.text


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


async def test_what_is_nested_too_deeply_is_refused_before_anybody_stumbles_over_it(rig: Rig) -> None:
    deep = {"type": "function", "function": {"name": "f", "parameters": nested(300)}}
    part = {"role": "user", "content": [{"type": "text", "text": "x", "more": nested(300)}]}
    for fields in (
        {"tools": [deep]},
        {"anything": nested(300)},
        {"messages": [part]},
        {"anything": nested(200)},
    ):
        answer = await rig.chat("x", **fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json"), fields
    assert not rig.stub.requests
    assert (await rig.chat("x", anything=nested(199))).status_code == 200
    event = {"id": "e", "generation_id": "gen_" + 32 * "0", "type": "user_message", "data": nested(900)}
    assert (await rig.http.post("/v1/events", json=event)).json()["error"]["code"] == "invalid_json"


async def test_a_call_that_the_model_nests_deeply_is_an_answer(rig: Rig) -> None:
    arguments = json.dumps({"a": nested(300)})
    answer = await rig.chat(f"stub:call read_file {arguments}", tools=[TOOL])
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == arguments
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    assert (await rig.chat("", messages=[*said, {"role": "user", "content": "go on"}])).status_code == 200
    assert len(rig.generations()) == 2


@pytest.mark.parametrize(
    ("arguments", "deep"),
    [
        ("[" * 1000, True),  # a 500 of vLLM, and with twenty of them nobody was answered
        ('{"a":' * 501, True),
        ('{"a":' * 500, False),
        ("[]" * 1000, False),
        (json.dumps({"code": "[{(" * 1000 + '"[' * 600}), False),
        ('{"code": "' + "[" * 1000, False),  # cut short: an engine's reader gets no further than the text
    ],
)
async def test_arguments_that_an_engine_stumbles_over_are_refused(
    rig: Rig, arguments: str, deep: bool
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    answer = await rig.chat("", messages=[*said, {"role": "user", "content": "go on"}])
    assert answer.status_code == (400 if deep else 200)
    if deep:
        assert answer.json()["error"]["param"] == "messages[1].tool_calls"


async def test_what_openais_own_client_sends_is_trained_on(rig: Rig) -> None:
    """vLLM passes over these, and nothing of them was ever learnt from."""
    fields = ("verbosity", "prompt_cache_retention", "prediction", "web_search_options", "moderation")
    assert (await rig.chat("x", **dict.fromkeys(fields, "low"))).status_code == 200
    assert rig.generations()[0].sampling.unknown == ()
    assert not set(fields) & rig.stub.requests[-1].keys()


async def test_what_is_refused_may_be_said_not_to_be_asked_for(rig: Rig) -> None:
    """Clients of completions send `"echo": false`: no field that nobody knows, and nothing for the engine."""
    body = {"model": "rtrl", "prompt": "stub:say a", "echo": False, "use_beam_search": False}
    assert (await rig.http.post("/v1/completions", json=body)).status_code == 200
    assert (await rig.chat("x", echo=False, prompt_logprobs=False)).status_code == 200
    assert [g.sampling.unknown for g in rig.generations()] == [(), ()], "trained on as any other"
    assert not any({"echo", "use_beam_search", "prompt_logprobs"} & sent.keys() for sent in rig.stub.requests)


async def test_an_empty_list_of_tools_is_none(rig: Rig) -> None:
    """vLLM refuses it, and clients send it for "no tools"."""
    assert (await rig.chat("x", tools=[], tool_choice="auto")).status_code == 200
    assert "tools" not in rig.stub.requests[-1]
    (generation,) = rig.generations()
    assert generation.tools_digest == ""


async def test_an_empty_logit_bias_biases_nothing(rig: Rig) -> None:
    """Some clients send it with every request: as a field that nobody knows none would be trained on."""
    assert (await rig.chat("x", logit_bias={})).status_code == 200
    assert rig.generations()[0].sampling.unknown == ()
    assert "logit_bias" not in rig.stub.requests[-1]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_an_engine_stumbles_over_does_not_close_it_to_others(
    rig: Rig, stream: bool
) -> None:
    """vLLM answers 500 to a schema that is its own `$ref`; fields it has and nobody knows are no better."""
    doubtful: list[dict[str, Any]] = [{"response_format": {"type": "json_object"}}, {"new_field": 1}]
    for fields in doubtful * 20:
        assert (await rig.chat("stub:status=500", stream=stream, **fields)).status_code == 503
    assert (await rig.chat("stub:status=503", stream=stream, new_field=1)).status_code == 503
    breaker = rig.gateway.arms.all()[0].engine.breaker
    assert (breaker.state, breaker.counted()) == ("closed", (1, 1))


@pytest.mark.parametrize(
    ("drafts", "min_p", "unknown"), [(True, 0.1, ("min_p",)), (True, 0, ()), (False, 0.1, ())]
)
def test_what_an_engine_that_drafts_passes_over_is_not_recorded_as_done(
    drafts: bool, min_p: float, unknown: tuple[str, ...]
) -> None:
    """Its tokens were held against a distribution that they do not come from."""
    body = {"model": "rtrl", "messages": [{"role": "user", "content": "x"}], "min_p": min_p}
    found = parse_request("chat", body, model="rtrl", defaults=DefaultSampling(), drafts=drafts)
    assert found.sampling.unknown == unknown
    assert orjson.loads(found.upstream)["min_p"] == min_p
