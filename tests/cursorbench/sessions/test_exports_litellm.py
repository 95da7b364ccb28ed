"""What LiteLLM's proxy tells of its calls: spend logs, its standard payload, what callbacks are given."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import exports_litellm, kinds
from cursorbench.sessions.items import AgentTurn, Edit, Quarantined, Read, ToolUse, UserTurn
from cursorbench.sessions.seen import Seen

WRITES = json.dumps({"path": "a.py", "old_str": "f", "new_str": "g"})
CALL = {"id": "call_abcdef", "type": "function", "function": {"name": "str_replace", "arguments": WRITES}}
SCHEMA = {"type": "object", "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "str_replace", "parameters": SCHEMA}}]
SAID = [
    {"role": "user", "content": "rename f"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_abcdef", "content": "ok"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "and h"},
    {"role": "assistant", "content": "Done, too."},
]
TOLD = {"AgentTurn": 3, "UserTurn": 2, "ToolUse": 1, "ToolEnd": 1, "Edit": 2, "SessionStart": 1}


def calls(said: list[dict[str, Any]] = SAID) -> list[tuple[int, list[dict[str, Any]], dict[str, Any]]]:
    """Each answer with what was asked for it; every request has all before it."""
    return [(n, said[:n], one) for n, one in enumerate(said) if one["role"] == "assistant"]


def response(n: int, answer: object) -> dict[str, Any]:
    return {"id": f"chatcmpl-{n}", "model": "m", "choices": [{"index": 0, "message": answer}]}


def rows(session: str = "", **more: Any) -> list[dict[str, Any]]:
    """Of the spend logs, where each request has a session of its own unless its client named one."""
    return [
        {
            "request_id": f"chatcmpl-{n}", "call_type": "acompletion", "api_key": "x", "spend": 0.1,
            "startTime": f"2026-11-01T10:0{n}:00Z", "endTime": f"2026-11-01T10:0{n}:02Z",
            "messages": {}, "session_id": session or f"trace-{n}", "response": response(n, answer),
            "proxy_server_request": {"model": "m", "messages": asked, "tools": TOOLS}, **more,
        }
        for n, asked, answer in calls()
    ]  # fmt: skip


def payloads() -> list[dict[str, Any]]:
    return [
        {
            "id": f"chatcmpl-{n}", "trace_id": f"trace-{n}", "call_type": "acompletion", "model": "m",
            "startTime": 1_793_527_200.0 + n, "endTime": 1_793_527_202.0 + n, "messages": asked,
            "response": response(n, answer), "model_parameters": {"tools": TOOLS}, "metadata": {},
        }
        for n, asked, answer in calls()
    ]  # fmt: skip


def callbacks() -> list[dict[str, Any]]:
    return [
        {
            "kwargs": {"model": "m", "messages": asked, "optional_params": {"tools": TOOLS}},
            "response_obj": response(n, answer),
            "start_time": f"2026-11-01T10:0{n}:00Z", "end_time": f"2026-11-01T10:0{n}:02Z",
        }
        for n, asked, answer in calls()
    ]  # fmt: skip


def texts_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row as `psql` and CSV have it, columns of JSON as text."""
    return {name: json.dumps(one) if isinstance(one, dict) else one for name, one in row.items()}


SHAPES: dict[str, list[object]] = {
    "rows": [*rows()],
    "rows of texts": [texts_of(row) for row in rows()],
    "rows of a client's session": [*rows("mine")],
    "a page of the dashboard's": [
        {"data": rows()[::-1], "total": 3, "page": 1, "page_size": 50, "total_pages": 1}
    ],
    "payloads": [*payloads()],
    "a batch of payloads": [payloads()],
    "what a callback is given": [*callbacks()],
    "its payload": [{"standard_logging_object": one} for one in payloads()],
    "a callback with one": [
        {**one, "kwargs": {**one["kwargs"], "standard_logging_object": payload}}
        for one, payload in zip(callbacks(), payloads(), strict=True)
    ],
}


def read(path: Path, *lines: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return [item for _, item in kinds.read(path)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_conversation_is_told_once(tmp_path: Path, shape: str) -> None:
    """It was one for each request, each with all before it; a page was of no known kind."""
    items = read(tmp_path / "log.json", *SHAPES[shape])
    assert Counter(type(item).__name__ for item in items) == TOLD
    assert len({item.session for item in items if not isinstance(item, Quarantined)}) == 1
    answers = [(item.id, item.duration_ms) for item in items if isinstance(item, AgentTurn)]
    assert answers == [(f"chatcmpl-{n}", 2000.0) for n in (1, 3, 5)]
    assert [item.checked for item in items if isinstance(item, ToolUse)] == ["ok"]
    assert [item.status for item in items if isinstance(item, Edit)] == ["proposed", "applied"]


def test_a_bucket_has_a_file_for_each_call(tmp_path: Path) -> None:
    """No edit was applied: its call is told by one file, how that ended by the next."""
    for n, one in enumerate(payloads()):
        (tmp_path / f"time-10-0{n}.json").write_text(json.dumps(one))
    items = [item for _, item in kinds.read(tmp_path)]
    assert Counter(type(item).__name__ for item in items) == TOLD
    assert [item.status for item in items if isinstance(item, Edit)] == ["proposed", "applied"]


def test_talks_that_begin_alike_are_two(tmp_path: Path) -> None:
    again = [{**row, "session_id": f"again-{row['session_id']}"} for row in rows()]
    again[0]["response"] = response(7, {"role": "assistant", "content": "Which f?"})
    items = read(tmp_path / "log.jsonl", rows()[0], again[0], *rows()[1:])
    assert [item.session for item in items if isinstance(item, UserTurn)] == [
        "trace-1",
        "again-trace-1",
        "trace-1",
    ]


def test_a_history_that_was_shortened_stays_in_its_session(tmp_path: Path) -> None:
    first, _, last = rows()
    last["proxy_server_request"]["messages"] = [SAID[0], {"role": "assistant", "content": "(cut)"}, SAID[4]]
    items = read(tmp_path / "log.jsonl", first, last)
    assert {item.session for item in items if isinstance(item, UserTurn)} == {"trace-1"}


@pytest.mark.parametrize("nothing", [{}, "{}", None, ""])
def test_spend_logs_without_prompts_say_why(tmp_path: Path, nothing: object) -> None:
    empty = {"messages": nothing, "proxy_server_request": nothing, "response": nothing}
    items = read(tmp_path / "log.jsonl", *rows(**empty))
    assert [item.reason for item in items if isinstance(item, Quarantined)] == [exports_litellm.NO_TEXTS] * 3
    assert len(items) == 3


@pytest.mark.parametrize(
    "mark", ["(litellm_truncated 99 chars)", "(litellm_truncated skipped 99 chars) ... }"]
)
def test_what_spend_logs_cut_is_no_slip_of_the_model(tmp_path: Path, mark: str) -> None:
    """Its arguments did not parse: a broken call."""
    cut = {**CALL, "function": {**CALL["function"], "arguments": f"{WRITES[:30]}... {mark}"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [cut]}
    row = {**rows()[0], "response": response(1, answer)}
    told = next(item for item in read(tmp_path / "log.jsonl", row) if isinstance(item, ToolUse))
    assert (told.name, told.arguments, told.invalid, told.checked) == ("str_replace", "", "", "")


def test_an_edit_whose_texts_were_cut_has_none(tmp_path: Path) -> None:
    """What stands later of texts that nobody wrote would be nothing."""
    given = {"path": "a.py", "old_str": "f", "new_str": "g ... (litellm_truncated skipped 99 chars) ... h"}
    cut = {**CALL, "function": {**CALL["function"], "arguments": json.dumps(given)}}
    row = {**rows()[0], "response": response(1, {"role": "assistant", "content": None, "tool_calls": [cut]})}
    (edit,) = [item for item in read(tmp_path / "log.jsonl", row) if isinstance(item, Edit)]
    assert (edit.path, edit.before, edit.after) == ("a.py", None, None)


def test_what_is_kept_of_a_reading_is_made_once() -> None:
    seen = Seen()
    assert seen.kept("x", list[int]) is seen.kept("x", list[int])
    assert seen.kept("y", list[int]) is not seen.kept("x", list[int])
