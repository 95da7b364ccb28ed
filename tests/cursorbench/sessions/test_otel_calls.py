"""Calls that spans tell under several ids, or under none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import AgentTurn, SessionStart, ToolEnd, ToolUse, UserTurn
from tests.cursorbench.sessions.test_otel_spellings import CHAT, only, read, span


def text(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def call(id_: str, **arguments: str) -> dict[str, Any]:
    part = {"type": "tool_call", "id": id_, "name": "look", "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


def end(id_: str, words: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": id_, "response": words}]}


def chat(start: int, one: str, asked: list[Any], answers: list[Any], trace: str = "t1") -> dict[str, Any]:
    told = {
        **CHAT,
        "gen_ai.response.id": one,
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(answers),
    }
    return {**span(told, start=start, end=start + 1), "traceId": trace}


def tool(start: int, given: str, **arguments: str) -> dict[str, Any]:
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": given,
    }
    return {**span(told, start=start, end=start + 1), "traceId": "t1", "spanId": f"{start:016}"}


def test_openllmetrys_spans_of_the_agents_sdk(tmp_path: Path) -> None:
    """Each call was told three times, and of several in one answer only the first was of it."""
    asked = [text("system", "Help."), text("user", "compare")]
    ids = ["call_aaaaaaaa", "call_bbbbbbbb"]
    answers = [call(ids[0], at="a"), call(ids[1], at="b")]
    ends = [end(ids[0], "1"), end(ids[1], "2")]
    history = [*asked, call("fc_aaaaaaaa", at="a"), call("fc_bbbbbbbb", at="b"), *ends]
    later = [*history, text("assistant", "alike"), text("user", "sure?")]
    spans = [
        chat(0, "resp_1", asked, answers),
        tool(1, "1", at="a"),
        tool(2, "2", at="b"),
        chat(3, "resp_2", history, [text("assistant", "alike")]),
        chat(5, "resp_3", later, [text("assistant", "yes")], "t2"),
    ]
    items = read(tmp_path, spans)
    assert [one.session for one in only(items, SessionStart)] == ["t1"]
    assert [one.text for one in only(items, UserTurn)] == ["compare", "sure?"]
    assert [one.text for one in only(items, AgentTurn)] == ["", "alike", "yes"]
    assert [one.id for one in only(items, ToolUse)] == ids
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == list(zip(ids, "12", strict=True))


@pytest.mark.parametrize("later", ["call_aaaaaaaa", "fc_aaaaaaaa"])
def test_an_answer_of_the_responses_api_that_comes_back_in_pieces(tmp_path: Path, later: str) -> None:
    """OpenLLMetry's of the client: the history has the call's own id where the item's was not kept."""
    asked = [text("user", "compare")]
    answer = call("fc_aaaaaaaa", at="a")
    answer["parts"].insert(0, {"type": "text", "content": "I look."})
    history = [*asked, text("assistant", "I look."), call(later, at="a"), end("call_aaaaaaaa", "1")]
    done = [text("assistant", "done")]
    items = read(tmp_path, [chat(0, "resp_1", asked, [answer]), chat(3, "resp_2", history, done, "t2")])
    assert [one.text for one in only(items, AgentTurn)] == ["I look.", "done"]
    assert [one.id for one in only(items, ToolUse)] == ["fc_aaaaaaaa"]
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == [("fc_aaaaaaaa", "1")]


def test_a_tool_whose_span_comes_before_any_message_with_the_call(tmp_path: Path) -> None:
    """The Agents SDK with another API: answers are in no span, only in the next request."""
    asked = [text("user", "compare")]
    again = [call("call_aaaaaaaa", at="a"), end("call_aaaaaaaa", "1")]
    spans = [chat(0, "", asked, []), tool(1, "1", at="a"), tool(2, "1", at="a")]
    items = read(tmp_path, [*spans, chat(3, "", [*asked, *again, call("call_bbbbbbbb", at="a")], [])])
    assert [one.id for one in only(items, ToolUse)] == [f"{n:016}" for n in (1, 2)]
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == [(f"{n:016}", "1") for n in (1, 2)]


def test_openinferences_items_of_an_answer(tmp_path: Path) -> None:
    """The first alone was the answer; its calls came with the next request, which was another session."""

    def fields(which: str, *found: dict[str, str]) -> dict[str, str]:
        told: dict[str, str] = {}
        for place, one in enumerate(found):
            told |= {f"llm.{which}_messages.{place}.message.{key}": value for key, value in one.items()}
        return told

    def looks(id_: str, at: str) -> dict[str, str]:
        told = {"id": id_, "function.name": "look", "function.arguments": json.dumps({"at": at})}
        return {"role": "assistant"} | {f"tool_calls.0.tool_call.{key}": one for key, one in told.items()}

    ask = {"role": "user", "content": "compare"}
    said = {"role": "assistant", "contents.0.message_content.type": "text"}
    said["contents.0.message_content.text"] = "I look."
    calls = [looks("call_aaaaaaaa", "a"), looks("call_bbbbbbbb", "b")]
    ends = [{"role": "tool", "tool_call_id": f"call_{8 * one}", "content": one} for one in "ab"]
    done = fields("output", {"role": "assistant", "content": "done"})
    about = {"llm.model_name": "m", "output.value": '{"id":"resp_1","created_at":1,"object":"response"}'}
    spans = [
        span({**about, **fields("input", ask), **fields("output", said, *calls)}),
        {
            **span({**about, **fields("input", ask, said, *calls, *ends), **done}, start=2, end=3),
            "traceId": "t2",
        },
    ]
    items = read(tmp_path, spans)
    assert len(only(items, SessionStart)) == 1
    assert [(one.text, one.model) for one in only(items, AgentTurn)] == [("I look.", "m"), ("done", "m")]
    assert [(one.id, one.at) for one in only(items, ToolUse)] == [
        ("call_aaaaaaaa", 1_700_000_000_000),
        ("call_bbbbbbbb", 1_700_000_000_000),
    ]
    assert [one.text for one in only(items, ToolEnd)] == ["a", "b"]


@pytest.mark.parametrize("id_", ["call_aaaaaaaa", None])
def test_openllmetrys_spans_of_langchains_tools(tmp_path: Path, id_: str | None) -> None:
    """Each call was told twice, with all that the callbacks got as its arguments. Older ones got no id."""
    asked = [text("user", "compare")]
    inside = {"content": "no such oven", "type": "tool", "tool_call_id": "call_aaaaaaaa", "status": "error"}
    whole = {"input_str": "{'at': 'a'}", "tags": [], "inputs": {"at": "a"}, "kwargs": {"tool_call_id": id_}}
    given = {"output": {"lc": 1, "type": "constructor", "kwargs": inside}, "kwargs": {}}
    run = tool(1, json.dumps(given), **whole)  # type: ignore[arg-type]
    again = [*asked, call("call_aaaaaaaa", at="a"), end("call_aaaaaaaa", "no such oven")]
    spans = [chat(0, "", asked, [call("call_aaaaaaaa", at="a")]), run, chat(3, "", again, [])]
    items = read(tmp_path, spans)
    assert [(one.id, json.loads(one.arguments)) for one in only(items, ToolUse)] == [
        ("call_aaaaaaaa", {"at": "a"})
    ]
    ends = [(one.id, one.text, one.outcome) for one in only(items, ToolEnd)]
    assert ends == [("call_aaaaaaaa", "no such oven", "error")]
