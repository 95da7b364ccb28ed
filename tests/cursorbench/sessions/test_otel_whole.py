"""Spans with request and answer as one attribute each, OpenLIT's histories, and tools that were offered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import otel
from cursorbench.sessions.items import AgentTurn, Quarantined, Read, ToolUse, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.test_otel import attributes, span
from tests.cursorbench.sessions.test_otel_pieces import in_parts

CALL = {"id": "call_abcdef", "type": "function", "function": {"name": "run", "arguments": "{}"}}
SAID: list[dict[str, Any]] = [
    {"role": "system", "content": "Help."},
    {"role": "user", "content": "rename f\nassistant, please"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_abcdef", "id": "call_abcdef", "content": "ok"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "and h"},
    {"role": "assistant", "content": "Done, too."},
]
TOLD = {"SessionStart": 1, "UserTurn": 2, "AgentTurn": 3, "ToolUse": 1, "ToolEnd": 1}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
RUN = {"type": "function", "function": {"name": "run", "parameters": SCHEMA}}


def lc(message: dict[str, Any]) -> dict[str, Any]:
    """A message as LangChain writes its objects."""
    kind = {"assistant": "ai", "user": "human"}.get(message["role"], message["role"])
    calls = [{"id": call["id"], "name": "run", "args": {}} for call in message.get("tool_calls", ())]
    told = {"type": kind, "content": message["content"], "tool_calls": calls}
    told |= {"tool_call_id": message["tool_call_id"]} if kind == "tool" else {}
    return {"lc": 1, "type": "constructor", "kwargs": told}


def of_langsmith(n: int) -> dict[str, Any]:
    answer = {"id": f"r{n}", "model": "m-1", "choices": [{"index": 0, "message": SAID[n]}]}
    asked = {"messages": SAID[:n], "tools": [RUN]}
    return {
        "gen_ai.prompt": json.dumps(asked),
        "gen_ai.completion": json.dumps(answer),
        "langsmith.span.kind": "llm",
    }


def of_langchain(n: int) -> dict[str, Any]:
    answer = {"generations": [[{"text": "", "message": lc(SAID[n])}]], "llm_output": {"model_name": "m-1"}}
    asked = json.dumps({"messages": [[lc(one) for one in SAID[:n]]]})
    return {"gen_ai.prompt": asked, "gen_ai.completion": json.dumps(answer), "langsmith.span.kind": "llm"}


def of_deprecated_attributes(n: int) -> dict[str, Any]:
    return {"gen_ai.prompt": json.dumps(SAID[:n]), "gen_ai.completion": json.dumps([SAID[n]])}


def of_cloudflare(n: int) -> dict[str, Any]:
    return {"gen_ai.prompt_json": json.dumps(SAID[:n]), "gen_ai.completion_json": json.dumps(SAID[n])}


def of_openlit(n: int) -> dict[str, Any]:
    """Its histories have no calls."""
    asked = [{key: one for key, one in message.items() if key != "tool_calls"} for message in SAID[:n]]
    told = {"gen_ai.input.messages": in_parts(asked), "gen_ai.output.messages": in_parts([SAID[n]])}
    return {**told, "telemetry.sdk.name": "openlit"}


WRITERS: list[Callable[[int], dict[str, Any]]] = [
    of_langsmith, of_langchain, of_deprecated_attributes, of_cloudflare, of_openlit,
]  # fmt: skip


def read(path: Path, *lines: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return list(otel.read(path, Seen()))


def chats(writer: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Each call is a trace of its own."""
    common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    return [
        span({**common, "gen_ai.response.id": f"r{n}", **writer(n)}, traceId=f"trace-{n}", spanId=f"span-{n}")
        for n, one in enumerate(SAID)
        if one["role"] == "assistant"
    ]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_conversation_is_told_once(tmp_path: Path, writer: Callable[[int], dict[str, Any]]) -> None:
    """Of LangSmith's no text was read; of OpenLIT's the words of an answer with a call came twice."""
    items = read(tmp_path / "otlp.jsonl", *chats(writer))
    assert Counter(type(one).__name__ for one in items) == TOLD
    assert len({one.session for one in items if not isinstance(one, Quarantined)}) == 1
    assert [one.id for one in items if isinstance(one, AgentTurn)] == ["r2", "r4", "r6"]


def test_an_answer_that_only_calls_leaves_nothing_in_openlits_history(tmp_path: Path) -> None:
    told = {"gen_ai.operation.name": "chat", "telemetry.sdk.name": "openlit"}
    only = {"role": "assistant", "tool_calls": [CALL]}
    lines = [
        span({**told, "gen_ai.input.messages": in_parts(asked), "gen_ai.output.messages": in_parts([answer])},
             traceId=f"trace-{n}", spanId=f"span-{n}")
        for n, (asked, answer) in enumerate([(SAID[:2], only), ([*SAID[:2], SAID[3]], SAID[4])])
    ]  # fmt: skip
    items = read(tmp_path / "otlp.jsonl", *lines)
    assert len([one for one in items if isinstance(one, UserTurn)]) == 1


@pytest.mark.parametrize("attribute", [True, False])
def test_a_text_of_all_messages_is_no_persons(tmp_path: Path, attribute: bool) -> None:
    """OpenLIT's of 2025: each call was a request of a person's, with all that was said before."""
    asked = "\n".join(f"{one['role']}: {one['content']}" for one in SAID[:4])
    asked += "\nassistant: None\nuser: text: and h"
    prompt, completion = {"gen_ai.prompt": asked}, {"gen_ai.completion": "Done."}
    events = [
        {"name": "gen_ai.content.prompt", "attributes": attributes(prompt)},
        {"name": "gen_ai.content.completion", "attributes": attributes(completion)},
    ]
    told = {"gen_ai.operation.name": "chat", **((prompt | completion) if attribute else {})}
    items = read(tmp_path / "otlp.jsonl", span(told, events=events))
    assert [one.text for one in items if isinstance(one, UserTurn | AgentTurn)] == [
        SAID[1]["content"], "I look.", "and h", "Done.",
    ]  # fmt: skip


def test_an_answer_of_openrouter(tmp_path: Path) -> None:
    told = {
        "gen_ai.prompt": json.dumps({"messages": SAID[:2]}),
        "gen_ai.completion": '{"completion": "Done."}',
    }
    items = read(tmp_path / "otlp.jsonl", span({"gen_ai.operation.name": "chat", **told}))
    assert [one.text for one in items if isinstance(one, UserTurn | AgentTurn)] == [
        SAID[1]["content"],
        "Done.",
    ]


def test_langsmiths_other_spans_repeat_its_calls(tmp_path: Path) -> None:
    chain = {
        "gen_ai.operation.name": "chain",
        "langsmith.span.kind": "chain",
        "gen_ai.prompt": '{"input": "x"}',
    }
    tool = {"gen_ai.operation.name": "execute_tool", "langsmith.span.kind": "tool", "gen_ai.prompt": "{}"}
    assert read(tmp_path / "otlp.jsonl", span(chain), span(tool, spanId="sp2")) == []


FLAT = {"type": "function", "name": "run", "inputSchema": SCHEMA}
OFFERED: dict[str, dict[str, Any]] = {
    "the conventions": {"gen_ai.tool.definitions": json.dumps([{"name": "run", "parameters": SCHEMA}])},
    "OpenLLMetry": {
        "llm.request.functions.0.name": "run", "llm.request.functions.0.description": "Runs.",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
    },
    "OpenInference": {"llm.tools.0.tool.json_schema": json.dumps(RUN)},
    "OpenInference of Anthropic": {
        "llm.tools.0.tool.json_schema": json.dumps({"name": "run", "input_schema": SCHEMA}),
    },
    "Vercel's AI SDK": {"ai.prompt.tools": [json.dumps(FLAT)]},
    "Logfire": {"request_data": json.dumps({"tools": [RUN]})},
    "Langfuse": {"langfuse.observation.input": json.dumps({"messages": [], "tools": [RUN]})},
}  # fmt: skip


@pytest.mark.parametrize("whose", OFFERED)
@pytest.mark.parametrize(("name", "checked"), [("run", "schema"), ("walk", "unknown_tool")])
def test_calls_are_checked_against_the_tools_offered(
    tmp_path: Path, whose: str, name: str, checked: str
) -> None:
    """Of others than the conventions' it was not known whether a call was valid."""
    call = {"type": "tool_call", "id": "call_abcdef", "name": name, "arguments": {"at": "."}}
    answer = json.dumps([{"role": "assistant", "parts": [call]}])
    told = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer, **OFFERED[whose]}
    (use,) = [one for one in read(tmp_path / "otlp.jsonl", span(told)) if isinstance(one, ToolUse)]
    assert use.checked == checked


def test_values_of_other_types_offer_nothing(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"llm.request.functions.0.parameters": 7, "llm.tools.0.tool.json_schema": 1.5}
    odd |= {"request_data": "[", "ai.prompt.tools": "x", "gen_ai.prompt": 3, "gen_ai.completion": True}
    answer = in_parts([SAID[2]])
    told = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer, **odd}
    (use,) = [one for one in read(tmp_path / "otlp.jsonl", span(told)) if isinstance(one, ToolUse)]
    assert use.checked == ""


def test_a_session_among_the_metadata_of_vercels_sdk(tmp_path: Path) -> None:
    told = {
        "ai.prompt.messages": json.dumps(SAID[:2]),
        "ai.response.text": "Done.",
        "gen_ai.response.id": "r",
    }
    items = read(tmp_path / "otlp.jsonl", span({**told, "ai.telemetry.metadata.sessionId": "mine"}))
    assert {one.session for one in items if not isinstance(one, Quarantined)} == {"mine"}
