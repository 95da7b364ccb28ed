"""Messages that are records of their own: with their call's span, before, in or behind it, or without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import otel, otel_pieces
from cursorbench.sessions.items import AgentTurn, Quarantined, Read, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.test_otel import AT, attributes, log, span

CALL = {"id": "call_abcdef", "type": "function", "function": {"name": "run", "arguments": "{}"}}
SAID: list[dict[str, Any]] = [
    {"role": "system", "content": "Help."},
    {"role": "user", "content": "rename f"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "id": "call_abcdef", "content": "ok"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "and h"},
    {"role": "assistant", "content": "Done, too."},
]
TOLD = {"SessionStart": 1, "UserTurn": 2, "AgentTurn": 3, "ToolUse": 1, "ToolEnd": 1}
DETAILS = "gen_ai.client.inference.operation.details"


def chat(n: int, **more: Any) -> dict[str, Any]:
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.id": f"r{n}",
    }
    return span(told, traceId=f"trace-{n}", spanId=f"span-{n}", **more)


def events(n: int, answer: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The records of the call that was asked all before its answer. Each call is a trace of its own."""
    of = {"traceId": f"trace-{n}", "spanId": f"span-{n}", **more}
    asked = [log(f"gen_ai.{one['role']}.message", {}, one, **of) for one in SAID[:n]]
    return [*asked, log("gen_ai.choice", {}, {"index": 0, "message": answer}, **of)]


def in_parts(messages: list[dict[str, Any]]) -> str:
    """Messages as the conventions have them since 1.37."""
    found = []
    for one in messages:
        if one["role"] == "tool":
            parts = [{"type": "tool_call_response", "id": one["id"], "response": one["content"]}]
        else:
            parts = [{"type": "text", "content": one["content"]}] if "content" in one else []
            calls = one.get("tool_calls", ())
            parts += [
                {"type": "tool_call", "id": call["id"], "name": "run", "arguments": {}} for call in calls
            ]
        found.append({"role": one["role"], "parts": parts})
    return json.dumps(found)


def answers() -> Iterator[tuple[int, dict[str, Any]]]:
    return ((n, one) for n, one in enumerate(SAID) if one["role"] == "assistant")


def details(n: int, answer: dict[str, Any]) -> dict[str, Any]:
    told = {"gen_ai.input.messages": in_parts(SAID[:n]), "gen_ai.output.messages": in_parts([answer])}
    return log(DETAILS, told, traceId=f"trace-{n}", spanId=f"span-{n}")


def of_span(n: int, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """As OpenLLMetry's and others' spans had them before 1.28."""
    told = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(SAID[:n])}),
        ("gen_ai.content.completion", {"gen_ai.completion": json.dumps([answer])}),
    ]
    return [chat(n, events=[{"name": name, "attributes": attributes(one)} for name, one in told])]


SHAPES = {
    "before their span": [line for n, one in answers() for line in (*events(n, one), chat(n))],
    "behind their span": [line for n, one in answers() for line in (chat(n), *events(n, one))],
    "behind all spans": [
        *(chat(n) for n, _ in answers()), *(line for n, one in answers() for line in events(n, one)),
    ],
    "of a span": [line for n, one in answers() for line in of_span(n, one)],
    "all in one, before": [line for n, one in answers() for line in (details(n, one), chat(n))],
    "all in one, behind": [line for n, one in answers() for line in (chat(n), details(n, one))],
}  # fmt: skip


def read(path: Path, *lines: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return list(otel.read(path, Seen()))


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_that_are_a_trace_each_are_one_session(tmp_path: Path, shape: str) -> None:
    """Each was a session with all before it again, and no answer had a model or a duration."""
    items = read(tmp_path / "otlp.jsonl", *SHAPES[shape])
    assert Counter(type(one).__name__ for one in items) == TOLD
    assert len({one.session for one in items if not isinstance(one, Quarantined)}) == 1
    told = [(one.id, one.model, one.duration_ms, one.at) for one in items if isinstance(one, AgentTurn)]
    assert told == [(f"r{n}", "m-1", 1500.0, AT) for n, _ in answers()]


@pytest.mark.parametrize("known", [True, False])
def test_messages_whose_span_is_not_there(tmp_path: Path, known: bool) -> None:
    """Also those that name none. No id is told, and so no answer that only calls."""
    more = {} if known else {"spanId": ""}
    items = read(tmp_path / "otlp.jsonl", *(line for n, one in answers() for line in events(n, one, **more)))
    assert Counter(type(one).__name__ for one in items) == TOLD | {"AgentTurn": 2}
    assert len({one.session for one in items if not isinstance(one, Quarantined)}) == 1


def test_a_span_of_several_calls(tmp_path: Path) -> None:
    """Messages that name the agent's span, which is around its calls: all answers are told, each once."""
    around = {"traceId": "tr", "spanId": "agent"}
    items = read(
        tmp_path / "otlp.jsonl", *(line for n, one in answers() for line in events(n, one, **around))
    )
    assert [one.text for one in items if isinstance(one, AgentTurn | UserTurn)] == [
        "rename f", "Done.", "and h", "Done, too.",
    ]  # fmt: skip


def test_an_agents_span_with_all_that_was_said(tmp_path: Path) -> None:
    names = ("user.message", "choice", "tool.message", "choice")
    told = [{"content": "rename f"}, {"message": {"tool_calls": [CALL]}}, SAID[3], {"message": SAID[4]}]
    texts = [{key: one if isinstance(one, str) else json.dumps(one) for key, one in t.items()} for t in told]
    each = [
        {"name": f"gen_ai.{name}", "attributes": attributes(one)}
        for name, one in zip(names, texts, strict=True)
    ]
    items = read(tmp_path / "otlp.jsonl", span({"gen_ai.operation.name": "invoke_agent"}, events=each))
    assert [type(one).__name__ for one in items] == [
        "SessionStart", "UserTurn", "ToolUse", "ToolEnd", "AgentTurn",
    ]  # fmt: skip


def test_calls_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_pieces, "_CALLS", 1)
    monkeypatch.setattr(otel_pieces, "_SPANS", 1)
    items = read(tmp_path / "otlp.jsonl", *SHAPES["before their span"][:3], *SHAPES["behind all spans"])
    assert Counter(type(one).__name__ for one in items) == TOLD


def test_many_messages_of_a_call_that_was_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was held against all before it: 100,000 took a quarter of an hour."""
    asked: list[object] = []
    monkeypatch.setattr(otel_pieces, "_MESSAGES", 8)
    monkeypatch.setattr(otel_pieces, "_is_last", lambda record: bool(asked.append(record)))
    lines = [log("gen_ai.user.message", {}, {"content": f"words {n}"}, spanId="s") for n in range(50)]
    items = read(tmp_path / "otlp.jsonl", *lines)
    assert [one.text for one in items if isinstance(one, UserTurn)] == [f"words {n}" for n in range(50)]
    assert len(asked) == 50
