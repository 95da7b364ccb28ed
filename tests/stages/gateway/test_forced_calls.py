"""Answers that have to be calls: what each API's words for it come to at the engine, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursorbench.harness.forced_calls import ForcedCalls, structural_tag
from stages.gateway.errors import ApiError
from stages.gateway.offered_tools import offered
from stages.sequences import not_reproducible
from tests.stages.gateway.rig import Rig

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
SCHEMAS = dict.fromkeys(("read", "list"), SCHEMA)
CHAT = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in SCHEMAS]
ONE = {"type": "function", "function": {"name": "list"}}
MESSAGES: dict[str, Any] = {
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "stub:say hello"}],
    "tools": [{"name": name, "input_schema": SCHEMA} for name in SCHEMAS],
}
RESPONSES: dict[str, Any] = {
    "input": "stub:say hello",
    "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in SCHEMAS],
}
SPACE = {"type": "namespace", "name": "files", "tools": RESPONSES["tools"]}
FREE = {"type": "custom", "name": "p"}
NAMED = {"type": "function", "name": "list"}
ALLOWED = {"type": "allowed_tools"}
ASKED = {"messages": [{"role": "user", "content": 'stub:call list {"path": "a"}'}], "tools": CHAT}


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return ALLOWED | {"allowed_tools": {"mode": mode, "tools": list(tools)}}


async def bound(rig: Rig, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the engine was asked for."""
    answer = await rig.http.post(path, json={"model": "rtrl"} | body)
    assert answer.status_code == 200, answer.text
    return dict(rig.stub.requests[-1])


@pytest.mark.parametrize(
    ("more", "names", "several"),
    [
        ({"tool_choice": "required"}, ("read", "list"), True),
        ({"tool_choice": "required", "parallel_tool_calls": True}, ("read", "list"), True),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ("read", "list"), False),
        ({"tool_choice": "required", "response_format": {"type": "text"}}, ("read", "list"), True),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, ("read", "list"), True),
        ({"tool_choice": ONE}, ("list",), False),
        ({"tool_choice": allowed("required", ONE, ONE)}, ("list",), True),
    ],
)
async def test_chats(rig: Rig, more: dict[str, Any], names: tuple[str, ...], several: bool) -> None:
    sent = await bound(rig, "/v1/chat/completions", ASKED | more)
    tag = structural_tag(ForcedCalls(names, several), SCHEMAS)
    assert sent["structured_outputs"] == {"structural_tag": tag}
    assert (sent["tool_choice"], sent["tools"]) == ("none", CHAT), "in the prompt, read by the gateway"
    (generation,) = rig.generations()
    assert "response_format" not in sent, "it is of the text alone, and there is none"
    assert json.loads(generation.sampling.grammar) == {
        "forced_calls": {"names": list(names), "several": several}
    }
    assert not_reproducible(generation.sampling) == "grammar"
    assert [(call.name, call.error) for call in generation.tool_calls] == [("list", "")]


@pytest.mark.parametrize("choice", ["auto", "none", allowed("auto", *CHAT)])
async def test_what_forces_nothing_binds_nothing(rig: Rig, choice: Any) -> None:
    asked = ASKED | {"tool_choice": choice}
    assert "structured_outputs" not in await bound(rig, "/v1/chat/completions", asked)
    assert rig.generations()[0].sampling.grammar == ""


SCHEMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("given", "schema"), [(SCHEMED, SCHEMA), ({"type": "json_object"}, {"type": "object"})]
)
async def test_an_answer_whose_text_has_a_format_may_be_calls_all_the_same(
    rig: Rig, given: Any, schema: Any
) -> None:
    asked = ASKED | {"response_format": given}
    for more, forced in (
        ({"parallel_tool_calls": False}, ForcedCalls(("read", "list"), False)),
        ({"tool_choice": "none"}, None),
        ({"tools": []}, None),
    ):
        sent = await bound(rig, "/v1/chat/completions", asked | more)
        assert sent["structured_outputs"] == {"structural_tag": structural_tag(forced, SCHEMAS, schema)}
        assert "response_format" not in sent
        calls = {"names": ["read", "list"], "several": False}
        grammar = {"response_format": given} | ({"forced_calls": calls} if forced else {})
        assert json.loads(rig.generations()[-1].sampling.grammar) == grammar
    own = {"structured_outputs": {"regex": "a"}}
    assert (await bound(rig, "/v1/chat/completions", asked | own))["structured_outputs"] == own[
        "structured_outputs"
    ]


async def test_a_no_train_requests_choice_is_not_recorded(rig: Rig) -> None:
    asked = ASKED | {"tool_choice": ONE, "metadata": {"rtrl_no_train": True}}
    assert "structured_outputs" in await bound(rig, "/v1/chat/completions", asked)
    assert rig.generations()[0].sampling.grammar == ""


@pytest.mark.parametrize(
    ("choice", "names", "several"),
    [
        ({"type": "any"}, ("read", "list"), True),
        ({"type": "any", "disable_parallel_tool_use": True}, ("read", "list"), False),
        ({"type": "tool", "name": "list"}, ("list",), False),
    ],
)
async def test_messages(rig: Rig, choice: Any, names: tuple[str, ...], several: bool) -> None:
    sent = await bound(rig, "/v1/messages", MESSAGES | {"tool_choice": choice})
    tag = structural_tag(ForcedCalls(names, several), SCHEMAS)
    assert sent["structured_outputs"] == {"structural_tag": tag}


@pytest.mark.parametrize(
    ("more", "names", "several"),
    [
        ({"tool_choice": "required"}, ("read", "list"), True),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ("read", "list"), False),
        ({"tool_choice": NAMED}, ("list",), False),
        ({"tool_choice": ALLOWED | {"mode": "required", "tools": [NAMED]}}, ("list",), True),
        ({"tool_choice": {**NAMED, "namespace": "files"}, "tools": [SPACE]}, ("files__list",), False),
        ({"tool_choice": FREE, "tools": [FREE]}, ("p",), False),
    ],
)  # fmt: skip
async def test_responses(rig: Rig, more: dict[str, Any], names: tuple[str, ...], several: bool) -> None:
    sent = await bound(rig, "/v1/responses", RESPONSES | more)
    schemas = SCHEMAS | {"files__list": SCHEMA, "p": sent["tools"][0]["function"]["parameters"]}
    tag = structural_tag(ForcedCalls(names, several), schemas)
    assert sent["structured_outputs"] == {"structural_tag": tag}


def test_schemas_that_are_too_long_for_a_grammar_are_refused() -> None:
    def asked(count: int, choice: str) -> dict[str, Any]:
        listed = {"enum": [f"{n:09}" for n in range(count)], "description": "d" * 600_000}
        return {"tools": [{"function": {"name": "list", "parameters": listed}}], "tool_choice": choice}

    assert offered(asked(15_000, "required")).tag
    assert not offered(asked(30_000, "auto")).tag
    with pytest.raises(ApiError) as caught:
        offered(asked(30_000, "required"))
    assert (caught.value.status, caught.value.param) == (400, "tools")


async def refused(rig: Rig, path: str, body: dict[str, Any]) -> Any:
    """The field that is told to be wrong."""
    answer = await rig.http.post(path, json={"model": "rtrl"} | body)
    assert answer.status_code == 400
    assert not rig.stub.requests
    return answer.json()["error"]["param"]


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": "required", "tools": []},
        {"tool_choice": "any"},
        {"tool_choice": 7},
        {"tool_choice": []},
        {"tool_choice": NAMED},
        {"tool_choice": {"type": "custom", "custom": {"name": "list"}}},
        {"tool_choice": {"type": "function", "function": {"name": "x"}}},
        {"tool_choice": allowed("required")},
        {"tool_choice": allowed("some", ONE)},
        {"tool_choice": allowed("auto", ONE)},
    ],
)
async def test_a_chats_choice_that_cannot_be_is_refused(rig: Rig, more: dict[str, Any]) -> None:
    assert await refused(rig, "/v1/chat/completions", ASKED | more) == "tool_choice"


async def test_a_forced_call_and_another_grammar_are_refused(rig: Rig) -> None:
    asked = ASKED | {"tool_choice": ONE, "structured_outputs": {"regex": "a"}}
    assert await refused(rig, "/v1/chat/completions", asked) == "structured_outputs"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": {"type": "any"}, "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": []}}, "tool_choice.type"),
        ({"tool_choice": {}}, "tool_choice.type"),
    ],
)
async def test_a_messages_choice_that_cannot_be_is_refused(
    rig: Rig, more: dict[str, Any], param: str
) -> None:
    assert await refused(rig, "/v1/messages", MESSAGES | more) == param


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": []}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": ALLOWED}, "tool_choice"),
        ({"tool_choice": ALLOWED | {"mode": "required", "tools": []}}, "tool_choice"),
        ({"tool_choice": ALLOWED | {"mode": "auto", "tools": [NAMED]}}, "tool_choice"),
        ({"tool_choice": ALLOWED | {"tools": [NAMED]}}, "tool_choice"),
    ],
)
async def test_a_responses_choice_that_cannot_be_is_refused(
    rig: Rig, more: dict[str, Any], param: str
) -> None:
    assert await refused(rig, "/v1/responses", RESPONSES | more) == param
