"""Requests that are refused, answers that go wrong: what clients are told, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stages.gateway.rig import Rig, running

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"echo": True}, "echo", "unsupported_parameter"),
    ({"tool_choice": "required", "tools": [TOOL]}, "tool_choice", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools", "invalid_value"),
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
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": ["hi"]}, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
    ({"metadata": 5}, "metadata", "invalid_value"),
    ({"user": "x" * 201}, "user", "invalid_value"),
    ({"user": "a\nb"}, "user", "invalid_value"),
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


async def test_a_slow_engine_is_a_timeout_and_recorded(tmp_path: Any) -> None:
    async with running(tmp_path, engine_timeout_s=0.2) as rig:
        answer = await rig.chat("stub:delay=1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        streamed = await rig.chat("stub:gap=0.15", stream=True)
        assert "engine_lost" in streamed.text
        assert "[DONE]" not in streamed.text
        first, second = rig.generations()
        assert (first.finish_reason, first.defect) == ("timeout", "no_output")
        assert (second.finish_reason, second.defect, second.output_tokens) == ("timeout", "", 1)
