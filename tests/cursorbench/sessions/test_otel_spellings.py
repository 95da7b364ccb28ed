"""Messages of GenAI spans as instrumentations spell them: Azure, Strands, Pydantic AI, arrays of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import AgentTurn, Edit, Read, SessionStart, ToolEnd, ToolUse, UserTurn

ARGUMENTS = {"path": "a.py", "old_str": "1", "new_str": "2"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.agent.name": "coder"}


def attributes(table: dict[str, Any]) -> list[dict[str, Any]]:
    def value(plain: Any) -> dict[str, Any]:
        if isinstance(plain, list):
            return {"arrayValue": {"values": [value(one) for one in plain]}}
        return {"intValue": str(plain)} if isinstance(plain, int) else {"stringValue": plain}

    return [{"key": key, "value": value(plain)} for key, plain in table.items()]


def span(
    told: dict[str, Any], *events: tuple[str, dict[str, Any]], start: int = 0, end: int = 1
) -> dict[str, Any]:
    """A span from second `start` to `end`."""
    return {
        "traceId": "tr",
        "spanId": f"sp{start}-{end}",
        "startTimeUnixNano": str((1_700_000_000 + start) * 10**9),
        "endTimeUnixNano": str((1_700_000_000 + end) * 10**9),
        "attributes": attributes(told),
        "events": [{"name": name, "attributes": attributes(table)} for name, table in events],
    }


def read(tmp_path: Path, *scopes: list[dict[str, Any]]) -> list[Read]:
    path = tmp_path / "spans.json"
    resource = {"scopeSpans": [{"spans": spans} for spans in scopes]}
    path.write_text(json.dumps({"resourceSpans": [resource]}) + "\n")
    return [item for _, item in kinds.read(path)]


def only(items: list[Read], kind: type[Any]) -> list[Any]:
    return [one for one in items if isinstance(one, kind)]


def said(items: list[Read]) -> list[tuple[str, str]]:
    return [(type(one).__name__, one.text) for one in items if isinstance(one, UserTurn | AgentTurn)]


def test_an_array_of_texts_each_a_message(tmp_path: Path) -> None:
    asked = json.dumps({"role": "user", "parts": [{"type": "text", "content": "fix"}]})
    told = {**CHAT, "gen_ai.input.messages": [asked], "gen_ai.output.messages": ["fixed"]}
    assert said(read(tmp_path, [span(told)])) == [("UserTurn", "fix"), ("AgentTurn", "fixed")]


def test_events_with_their_content_as_one_attribute(tmp_path: Path) -> None:
    call = {"id": "call_12345", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    answer = {"index": 0, "message": {"role": "assistant", "content": "yes", "tool_calls": [call]}}
    events = [
        ("gen_ai.system.message", {"gen_ai.event.content": json.dumps({"role": "system", "content": "s"})}),
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"role": "user", "content": "fix"})}),
        ("gen_ai.choice", {"gen_ai.event.content": json.dumps(answer)}),
    ]
    items = read(tmp_path, [span(CHAT, *events, end=2)])
    assert said(items) == [("UserTurn", "fix"), ("AgentTurn", "yes")]
    assert [one.name for one in only(items, ToolUse)] == ["ls"]
    (turn,) = only(items, AgentTurn)
    assert (turn.model, turn.duration_ms) == ("m", 2000.0)
    assert [one.agent for one in only(items, SessionStart)] == ["coder"]


@pytest.mark.parametrize(
    "choice",
    [
        {"message.role": "assistant", "message.content": "yes"},
        {"message": json.dumps({"role": "assistant", "content": "yes"})},
        {"message": json.dumps([{"text": "yes"}])},
        {"message": "yes"},
    ],
)
def test_choices_in_attributes_that_can_only_be_texts(tmp_path: Path, choice: dict[str, Any]) -> None:
    events = [("gen_ai.user.message", {"content": '[{"text": "fix"}]'}), ("gen_ai.choice", choice)]
    assert said(read(tmp_path, [span(CHAT, *events)])) == [("UserTurn", "fix"), ("AgentTurn", "yes")]


def test_json_that_a_person_wrote_stays_theirs(tmp_path: Path) -> None:
    text = '[{"name": "a"}, 1]'
    assert said(read(tmp_path, [span(CHAT, ("gen_ai.user.message", {"content": text}))])) == [
        ("UserTurn", text)
    ]


@pytest.mark.parametrize("end", ["...[truncated, original 70000 chars]", ""])
def test_messages_that_were_cut_off_at_a_limit(tmp_path: Path, end: str) -> None:
    """The text of the list was a person's message, of each call of the model another one."""

    def told(role: str, words: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": words}]}

    asked = json.dumps([told("system", "be kind"), told("user", "fix"), told("assistant", "so?")])
    answered = json.dumps([told("assistant", "fixed")])
    spans = [
        span({**CHAT, "gen_ai.input.messages": asked[:-cut] + end, "gen_ai.output.messages": answered})
        for cut in (3, 9)
    ]
    assert said(read(tmp_path, spans)) == [("UserTurn", "fix"), ("AgentTurn", "fixed")]


def test_a_session_in_bedrocks_blocks(tmp_path: Path) -> None:
    """Strands: the tool's span tells in message events what it was asked and gave."""
    use = {"toolUse": {"toolUseId": "tooluse_1234", "name": "edit", "input": ARGUMENTS}}
    gave = [
        {"toolResult": {"toolUseId": "tooluse_1234", "status": "success", "content": [{"text": "done it"}]}}
    ]
    fix = ("gen_ai.user.message", {"content": json.dumps([{"text": "fix"}])})
    calls = json.dumps([{"text": "on it"}, use])
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "edit"}
    events = [
        ("gen_ai.tool.message", {"role": "tool", "content": json.dumps(ARGUMENTS), "id": "tooluse_1234"}),
        ("gen_ai.choice", {"message": json.dumps([{"text": "done it"}]), "id": "tooluse_1234"}),
    ]
    repeated = [
        ("gen_ai.assistant.message", {"content": calls}),
        ("gen_ai.tool.message", {"content": json.dumps(gave)}),
    ]
    done = ("gen_ai.choice", {"message": json.dumps([{"text": "fixed"}])})
    items = read(
        tmp_path,
        [
            span(CHAT, fix, ("gen_ai.choice", {"message": calls}), start=0, end=1),
            span({**tool, "gen_ai.tool.call.id": "tooluse_1234"}, *events, start=1, end=2),
            span(CHAT, fix, *repeated, done, start=2, end=3),
        ],
    )
    assert said(items) == [("UserTurn", "fix"), ("AgentTurn", "on it"), ("AgentTurn", "fixed")]
    assert [(one.name, json.loads(one.arguments)) for one in only(items, ToolUse)] == [("edit", ARGUMENTS)]
    assert [(one.outcome, one.text) for one in only(items, ToolEnd)] == [("ok", "done it")]
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]


def test_the_tools_span_alone_tells_of_the_call(tmp_path: Path) -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "edit", "error.type": "timeout"}
    asked = ("gen_ai.tool.message", {"content": json.dumps(ARGUMENTS)})
    items = read(tmp_path, [span(tool, asked, ("gen_ai.choice", {"message": "too slow"}))])
    assert [json.loads(one.arguments) for one in only(items, ToolUse)] == [ARGUMENTS]
    assert [(one.outcome, one.text) for one in only(items, ToolEnd)] == [("error", "too slow")]
    assert said(items) == []


def test_message_events_in_one_attribute(tmp_path: Path) -> None:
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "fix"},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "fixed"}},
    ]
    items = read(tmp_path, [span({**CHAT, "events": json.dumps(events), "gen_ai.response.id": "r1"})])
    assert said(items) == [("UserTurn", "fix"), ("AgentTurn", "fixed")]
    assert [(one.id, one.at) for one in only(items, AgentTurn)] == [("r1", 1_700_000_000_000)]


def test_tools_that_another_library_tells_first(tmp_path: Path) -> None:
    """An export lists spans by library: the agent's with its tools, then the model's calls."""
    call = {"type": "tool_call", "id": "call_12345", "name": "edit", "arguments": ARGUMENTS}
    asked = {"role": "user", "parts": [{"type": "text", "content": "fix"}]}
    calls = {"role": "assistant", "parts": [call]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "fixed"}]}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "edit",
        "gen_ai.tool.call.id": "call_12345",
    }
    first = {
        **CHAT,
        "gen_ai.input.messages": json.dumps([asked]),
        "gen_ai.output.messages": json.dumps([calls]),
    }
    last = {
        **CHAT,
        "gen_ai.input.messages": json.dumps([asked, calls]),
        "gen_ai.output.messages": json.dumps([answer]),
    }
    agent = {**last, "gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": json.dumps([asked])}
    items = read(
        tmp_path,
        [span(tool, start=1, end=2), span(agent, start=0, end=4)],
        [span(first, start=0, end=1), span(last, start=2, end=3)],
    )
    assert [json.loads(one.arguments) for one in only(items, ToolUse)] == [ARGUMENTS]
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]
    assert said(items) == [("UserTurn", "fix"), ("AgentTurn", ""), ("AgentTurn", "fixed")]


def test_the_same_answer_twice_where_input_and_output_are_events_of_one_span(tmp_path: Path) -> None:
    details = "gen_ai.client.inference.operation.details"

    def turn(*texts: str, start: int) -> dict[str, Any]:
        roles = ("user", "assistant", "user")
        asked = [
            {"role": r, "parts": [{"type": "text", "content": t}]} for r, t in zip(roles, texts, strict=False)
        ]
        answer = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
        events = [
            (details, {"gen_ai.input.messages": json.dumps(asked)}),
            (details, {"gen_ai.output.messages": json.dumps(answer)}),
        ]
        return span(CHAT, *events, start=start, end=start + 1)

    items = read(tmp_path, [turn("fix", start=0), turn("fix", "Done.", "again", start=1)])
    assert [text for _, text in said(items)] == ["fix", "Done.", "again", "Done."]


def said_and_done(items: list[Read]) -> list[tuple[str, ...]]:
    of = {UserTurn: "text", AgentTurn: "text", ToolUse: "arguments", ToolEnd: "outcome"}
    told = [(type(one).__name__, getattr(one, of[type(one)])) for one in items if type(one) in of]
    return [(name, one.replace(" ", "") if name == "ToolUse" else one) for name, one in told]


def told_once(result: str = "ok") -> list[tuple[str, ...]]:
    """Two calls of the model, the second of which repeats the first."""
    arguments = json.dumps(ARGUMENTS, separators=(",", ":"))
    first = [("UserTurn", "fix"), ("AgentTurn", "let me see"), ("ToolUse", arguments)]
    return [*first, ("ToolEnd", result), ("AgentTurn", "fixed")]


def test_calls_and_their_ends_under_two_ids(tmp_path: Path) -> None:
    """OpenLLMetry's of the Responses API: no edit was ever applied, and the ends were of no call."""

    def part(kind: str, **more: Any) -> dict[str, Any]:
        return {
            "role": "tool" if kind == "tool_call_response" else "assistant",
            "parts": [{"type": kind, **more}],
        }

    asked = {"role": "user", "parts": [{"type": "text", "content": "fix"}]}
    call = part("tool_call", id="fc_abcdefgh", name="str_replace", arguments=ARGUMENTS)
    other = part("tool_call", id="fc_ijklmnop", name="ls", arguments={})
    ends = [part("tool_call_response", id=f"call_{one}", response=one) for one in ("12345678", "87654321")]
    answer = {"role": "assistant", "parts": [*call["parts"], *other["parts"]]}
    first = {**CHAT, "gen_ai.input.messages": json.dumps([asked])}
    second = {**CHAT, "gen_ai.input.messages": json.dumps([asked, call, other, *ends])}
    items = read(
        tmp_path,
        [
            span({**first, "gen_ai.output.messages": json.dumps([answer])}),
            span({**second, "gen_ai.output.messages": json.dumps(["fixed"])}, start=2, end=3),
        ],
    )
    assert [one.id for one in only(items, ToolUse)] == ["fc_abcdefgh", "fc_ijklmnop"]
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == [
        ("fc_abcdefgh", "12345678"),
        ("fc_ijklmnop", "87654321"),
    ]
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]


def test_a_tool_that_the_service_ran(tmp_path: Path) -> None:
    """Since 1.40 of the conventions; it was in no item."""
    about = {"id": "srv_abcdefgh", "name": "code_interpreter"}
    ran = {"type": "server_tool_call", **about, "server_tool_call": {"type": "code", "code": "1+1"}}
    output = {"type": "code", "output": "2"}
    gave = {"type": "server_tool_call_response", "id": "srv_abcdefgh", "server_tool_call_response": output}
    answer = [{"role": "assistant", "parts": [ran, gave, {"type": "text", "content": "2"}]}]
    offers = json.dumps([{"type": "function", "name": "ls", "parameters": {}}])
    told = {**CHAT, "gen_ai.output.messages": json.dumps(answer), "gen_ai.tool.definitions": offers}
    items = read(tmp_path, [span(told)])
    (use,) = only(items, ToolUse)
    assert (use.id, use.name, json.loads(use.arguments)["code"]) == (
        "srv_abcdefgh",
        "code_interpreter",
        "1+1",
    )
    assert (use.invalid, use.checked) == ("", "")
    (end,) = only(items, ToolEnd)
    assert (end.id, end.outcome, json.loads(end.text)["output"]) == ("srv_abcdefgh", "ok", "2")


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_messages_of_openinference(tmp_path: Path, client: str) -> None:
    """No attribute of theirs is a `gen_ai.` one; the spans vanished uncounted.

    Of Anthropic's client a call stands twice in a message, and what a tool gave is under the role `user`: it
    was a call without a name, and a person's message.
    """
    call = {
        "tool_calls.0.tool_call.id": "call_abcdefgh",
        "tool_calls.0.tool_call.function.name": "str_replace",
        "tool_calls.0.tool_call.function.arguments": json.dumps(ARGUMENTS),
    }
    asked = {
        "role": "user",
        "contents.0.message_content.type": "text",
        "contents.0.message_content.text": "fix",
    }
    looks = {"role": "assistant", "content": "let me see", **call}
    result = {"role": "tool", "content": "done", "tool_call_id": "call_abcdefgh"}
    if client == "anthropic":
        text = {"message_content.type": "text", "message_content.text": "let me see"}
        ordered = [text, {"message_content.type": "tool_use"}]
        looks = {f"contents.{n}.{key}": one for n, of in enumerate(ordered) for key, one in of.items()}
        looks |= {"role": "assistant", **call}
        looks |= {key.replace("tool_calls.0", "contents.1"): one for key, one in call.items()}
        result["role"] = "user"

    def told(which: str, *messages: dict[str, str]) -> dict[str, str]:
        listed = enumerate(messages)
        return {f"llm.{which}_messages.{n}.message.{key}": one for n, of in listed for key, one in of.items()}

    about = {"openinference.span.kind": "LLM", "llm.model_name": "m", "session.id": "s"}
    first = {**about, **told("input", asked), **told("output", looks)}
    second = {**about, **told("input", asked, looks, result)}
    second |= told("output", {"role": "assistant", "content": "fixed"})
    items = read(tmp_path, [span(first), span(second, start=2, end=3)])
    assert said_and_done(items) == told_once()
    assert {(one.session, one.model) for one in only(items, AgentTurn)} == {("s", "m")}
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]


@pytest.mark.parametrize("version", [4, 5])
def test_messages_of_vercels_sdk(tmp_path: Path, version: int) -> None:
    """They were in no attribute that was read; the spans vanished uncounted."""
    given, gives = ("args", "result") if version == 4 else ("input", "output")
    call = {"toolCallId": "call_abcdefgh", "toolName": "str_replace"}
    output = "done" if version == 4 else {"type": "error-text", "value": "done"}
    asked = {"role": "user", "content": [{"type": "text", "text": "fix"}]}
    text = {"type": "text", "text": "let me see"}
    looks = {"role": "assistant", "content": [text, {"type": "tool-call", **call, given: ARGUMENTS}]}
    result = {"role": "tool", "content": [{"type": "tool-result", **call, gives: output}]}
    about = {"operation.name": "ai.generateText.doGenerate", "gen_ai.response.model": "m"}
    first = {
        **about,
        "gen_ai.response.id": "r1",
        "ai.prompt.messages": json.dumps([asked]),
        "ai.response.text": "let me see",
        "ai.response.toolCalls": json.dumps(
            [{"toolCallType": "function", **call, given: json.dumps(ARGUMENTS)}]
        ),
    }
    second = {
        **about,
        "gen_ai.response.id": "r2",
        "ai.prompt.messages": json.dumps([asked, looks, result]),
        "ai.response.text": "fixed",
    }
    outer = {"operation.name": "ai.generateText", "ai.prompt": "{}", "ai.response.text": "fixed"}
    items = read(tmp_path, [span(first), span(second, start=2, end=3), span(outer, end=4)])
    assert said_and_done(items) == told_once("ok" if version == 4 else "error")
    assert [(one.id, one.model) for one in only(items, AgentTurn)] == [("r1", "m"), ("r2", "m")]
