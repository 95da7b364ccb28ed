"""Plain logs of OpenAI requests in the shapes in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursorbench.sessions import openai_log
from cursorbench.sessions.items import (
    AgentTurn,
    Completion,
    Edit,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import lines, lines_backwards
from cursorbench.sessions.seen import Seen

AT = 1_700_000_000_000
SYSTEM = {"role": "system", "content": "be kind"}
ASK = {"role": "user", "content": "rename f"}
ARGUMENTS = '{"path": "a.py", "old_str": "f", "new_str": "g"}'
CALL = {"id": "call_abcdef", "type": "function", "function": {"name": "str_replace", "arguments": ARGUMENTS}}
DOES: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DID = {"role": "tool", "tool_call_id": "call_abcdef", "content": "edited"}
DONE = {"role": "assistant", "content": "done", "reasoning_content": "hm"}


def request(*messages: object, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def response(message: object, one: str) -> dict[str, Any]:
    return {
        "id": one,
        "created": 1_700_000_000,
        "model": "m-1",
        "choices": [{"index": 0, "message": message}],
    }


def read(path: Path, *records: object, seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return list(openai_log.read(path, seen or Seen()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def kinds(items: list[Read]) -> list[str]:
    return [type(one).__name__ for one in items]


@pytest.mark.parametrize("thought", ["<think>\nHm.\n</think>\n\n", "Hm.\n</think>\n\n"])
def test_an_answer_that_is_sent_back_without_its_thoughts_is_told_once(path: Path, thought: str) -> None:
    """As makers of such models tell their users to: each answer stood twice in the episode."""
    records = [
        {
            "request": request(ASK),
            "response": response({"role": "assistant", "content": f"{thought}did"}, "a1"),
        },
        {
            "request": request(
                ASK, {"role": "assistant", "content": "did"}, {"role": "user", "content": "no"}
            ),
            "response": response({"role": "assistant", "content": "now"}, "a2"),
        },
    ]
    told = [item.text for item in read(path, *records) if isinstance(item, UserTurn | AgentTurn)]
    assert told == ["rename f", f"{thought}did", "no", "now"]


def test_a_session_of_requests_that_repeat_it(path: Path) -> None:
    items = read(
        path,
        {"request": request(SYSTEM, ASK), "response": response(DOES, "r1"), "duration_ms": 12},
        {"request": request(SYSTEM, ASK, DOES, DID), "response": response(DONE, "r2")},
        {"request": request(SYSTEM, ASK, DOES, DID), "response": response(DONE, "r2")},
        {"request": request(SYSTEM, ASK, DOES, DID, DONE, ASK), "response": {"error": {"message": "busy"}}},
    )
    places = [Place(str(path), n) for n in range(1, 5)]
    session = items[0].session if isinstance(items[0], SessionStart) else ""
    told: dict[str, Any] = {"session": session, "at": AT}
    edit: dict[str, Any] = {"id": "call_abcdef", "path": "a.py", "before": "f", "after": "g", **told}
    assert session.startswith("openai-log:")
    assert items == [
        SessionStart(place=places[0], **told),
        UserTurn(place=places[0], text="rename f", **told),
        AgentTurn(place=places[0], id="r1", text="", model="m-1", duration_ms=12.0, **told),
        ToolUse(place=places[0], id="call_abcdef", name="str_replace", arguments=ARGUMENTS, **told),
        Edit(place=places[0], status="proposed", **edit),
        ToolEnd(place=places[1], id="call_abcdef", outcome="ok", text="edited", **told),
        Edit(place=places[1], status="applied", **edit),
        AgentTurn(place=places[1], id="r2", text="done", model="m-1", thinking="hm", **told),
        UserTurn(place=places[3], session=session, text="rename f"),
    ]


def test_a_failed_tool_changes_nothing(path: Path) -> None:
    failed = {**DID, "content": "Error: no such file"}
    items = read(path, request(ASK, DOES, failed))
    assert kinds(items) == ["SessionStart", "UserTurn", "ToolUse", "Edit", "ToolEnd"]
    assert isinstance(items[-1], ToolEnd)
    assert items[-1].outcome == "error"


def test_broken_arguments_are_told(path: Path) -> None:
    call = {"id": "c", "function": {"name": "run", "arguments": '{"a": '}}
    items = read(path, {"request": request(ASK), "response": response({"tool_calls": [call, 5]}, "r")})
    uses = [one for one in items if isinstance(one, ToolUse)]
    assert [(one.arguments, one.invalid) for one in uses] == [('{"a": ', "not valid JSON")]


def test_batches_join_by_their_own_id(tmp_path: Path) -> None:
    asked = {"custom_id": "q1", "method": "POST", "url": "/v1/chat/completions", "body": request(ASK)}
    answered = {"id": "b", "custom_id": "q1", "response": {"status_code": 200, "body": response(DONE, "r")}}
    failed = {"id": "b", "custom_id": "q2", "response": None, "error": {"code": "expired"}}
    seen = Seen()
    items = read(tmp_path / "in.jsonl", asked, seen=seen) + read(
        tmp_path / "out.jsonl", answered, failed, seen=seen
    )
    assert kinds(items) == ["SessionStart", "UserTurn", "AgentTurn"]
    assert {one.session for one in items if not isinstance(one, Quarantined)} == {"q1"}


def test_flat_records_and_texts(path: Path) -> None:
    items = read(
        path,
        {"session_id": "s", "messages": [ASK], "response": "sure", "model": "m", "timestamp": 1_700_000_000},
        {"session_id": "s", "messages": [ASK, DONE]},
        {
            "metadata": {"session_id": "t"},
            "request": json.dumps(request(ASK)),
            "response": json.dumps(response(DONE, "r")),
        },
    )
    turns = [(one.session, one.text, one.model) for one in items if isinstance(one, AgentTurn)]
    assert turns == [("s", "sure", "m"), ("s", "done", ""), ("t", "done", "m-1")]
    assert [one.session for one in items if isinstance(one, UserTurn)] == ["s", "t"]


@pytest.mark.parametrize(
    ("record", "at", "session", "ms"),
    [
        (  # a row of LiteLLM's spend logs: what was asked is in the proxy's own request alone
            {
                "session_id": "s", "messages": {}, "startTime": "2023-11-14T22:13:20Z",
                "endTime": "2023-11-14T22:13:21Z", "response": json.dumps(response(DONE, "r")),
                "proxy_server_request": json.dumps(request(ASK)),
            },
            AT, "s", 1000.0,
        ),
        (  # Helicone's
            {
                "request_created_at": "2023-11-14T22:13:19+00:00", "request_body": request(ASK),
                "response_body": response(DONE, "r"), "delay_ms": 900,
                "request_properties": {"Helicone-Session-Id": "h"},
            },
            AT - 1000, "h", 900.0,
        ),
        (  # an observation of Langfuse's, whose input may be a text
            {
                "sessionId": "l", "model": "m-1", "startTime": "2023-11-14T22:13:20Z",
                "input": json.dumps({"messages": [ASK]}), "output": DONE,
            },
            AT, "l", None,
        ),
    ],
)  # fmt: skip
def test_rows_of_proxies(path: Path, record: dict[str, Any], at: int, session: str, ms: float | None) -> None:
    assert openai_log.recognises(path, json.dumps(record).encode())
    _, asked, told = read(path, record)
    assert isinstance(asked, UserTurn)
    assert isinstance(told, AgentTurn)
    assert (asked.text, asked.at, asked.session) == ("rename f", at, session)
    assert (told.text, told.model, told.duration_ms) == ("done", "m-1", ms)


def test_what_a_person_writes_may_be_json(path: Path) -> None:
    record = {"model": "m", "input": '{"input": "x", "messages": "y"}', "output": DONE}
    assert [one.text for one in read(path, record) if isinstance(one, UserTurn)] == [record["input"]]


def test_the_responses_api(path: Path) -> None:
    call = {"type": "function_call", "call_id": "call_abcdef", "name": "run", "arguments": "{}"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    ended = {"type": "function_call_output", "call_id": "call_abcdef", "output": "fine"}
    first = {"id": "resp_1", "model": "m", "output": [thought, call]}
    second = {"id": "resp_2", "model": "m", "output": [said]}
    items = read(
        path,
        {"request": {"model": "m", "input": "go"}, "response": first},
        {"request": {"model": "m", "previous_response_id": "resp_1", "input": [ended]}, "response": second},
    )
    assert kinds(items) == ["SessionStart", "UserTurn", "AgentTurn", "ToolUse", "ToolEnd", "AgentTurn"]
    assert len({one.session for one in items if not isinstance(one, Quarantined)}) == 1
    assert [(one.text, one.thinking) for one in items if isinstance(one, AgentTurn)] == [
        ("", "hm"),
        ("ok", ""),
    ]


def test_streams_add_up(path: Path) -> None:
    def chunk(**delta: Any) -> dict[str, Any]:
        return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta}]}

    parts = [
        {"index": 0, "id": "call_1", "function": {"name": "run", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
    ]
    chunks = [chunk(content="o"), chunk(content="k"), *(chunk(tool_calls=[part]) for part in parts)]
    items = read(path, {"request": request(ASK), "response": chunks})
    assert [(one.id, one.text) for one in items if isinstance(one, AgentTurn)] == [("r", "ok")]
    assert [(one.id, one.arguments) for one in items if isinstance(one, ToolUse)] == [("call_1", "{}")]


def piece(given: str, one: str = "", name: str = "", **index: int) -> dict[str, Any]:
    return {
        **index,
        **({"id": one} if one else {}),
        "function": {"arguments": given, **({"name": name} if name else {})},
    }


@pytest.mark.parametrize(
    "pieces",
    [
        [piece('{"a":', "c1", "run"), piece("1}"), piece("{}", "c2", "run")],  # Gemini: no index
        [piece('{"a":1}', "c1", "run", index=0), piece("{}", "c2", "run", index=0)],  # or always the same
        # vLLM: another id with each piece
        [piece('{"a":', "c1", "run", index=0), piece("1}", "x", index=0), piece("{}", "c2", "run", index=1)],
    ],
)
def test_calls_of_a_stream_without_places_of_their_own(path: Path, pieces: list[dict[str, Any]]) -> None:
    """They were one call, whose arguments did not parse."""
    chunks = [{"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in pieces]
    items = read(path, {"request": request(ASK), "response": chunks})
    calls = [(one.id, one.arguments, one.invalid) for one in items if isinstance(one, ToolUse)]
    assert calls == [("c1", '{"a":1}', ""), ("c2", "{}", "")]


def test_completions_of_text(path: Path) -> None:
    asked = {"model": "m", "prompt": "def f", "suffix": "", "max_tokens": 5}
    answered = {"id": "cmpl-1", "model": "m", "choices": [{"text": "():"}]}
    assert read(path, {"request": asked, "response": answered}) == [
        Completion(session="", id="cmpl-1", place=Place(str(path), 1), prompt="def f", text="():", model="m")
    ]


def test_who_wrote_a_user_message(path: Path) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_123456", "content": "x", "is_error": True}
    items = read(
        path,
        request(
            {"role": "user", "content": [result]},
            {"role": "user", "content": "<environment_context>\n</environment_context>"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {}}],
            },
        ),
    )
    assert [(one.text[:5], one.automatic) for one in items if isinstance(one, UserTurn)] == [
        ("<envi", "meta"),
        ("hello", ""),
    ]
    assert [one.outcome for one in items if isinstance(one, ToolEnd)] == ["error"]


def test_a_document_and_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps([request(ASK), {"a": 1}, 5], indent=1))
    assert openai_log.recognises(path, path.read_bytes())
    assert [one.reason for one in openai_log.read(path, Seen()) if isinstance(one, Quarantined)] == [
        "neither a request nor a response",
        "not a JSON object",
    ]


def test_recognised() -> None:
    path = Path("log.jsonl")
    assert openai_log.recognises(path, json.dumps({"messages": [ASK, DONE]}).encode())
    assert openai_log.recognises(
        path, json.dumps({"custom_id": "x", "response": {"body": response(DONE, "r")}}).encode()
    )
    assert not openai_log.recognises(path, json.dumps({"messages": [{"info": {}}], "info": {}}).encode())
    assert not openai_log.recognises(path, json.dumps({"messages": [ASK], "v": 2, "env": {}}).encode())
    assert not openai_log.recognises(path, b'{"type": "user"}')


def test_an_answer_of_tensorzero_is_of_its_episode(path: Path) -> None:
    """Its gateway answers with the inference as `id` and with the episode, which feedback names."""
    told = {**response(DONE, "inference-1"), "episode_id": "019da000-0000-7000-8000-000000000000"}
    items = read(path, {"request": request(ASK), "response": told})
    assert {one.session for one in items if not isinstance(one, Quarantined)} == {told["episode_id"]}


def test_a_stream_of_tensorzero_is_of_its_episode_too(path: Path) -> None:
    chunk = {"id": "r", "episode_id": "e", "choices": [{"index": 0, "delta": {"content": "hi"}}]}
    items = read(path, {"request": request(ASK), "response": [chunk]})
    assert {one.session for one in items if not isinstance(one, Quarantined)} == {"e"}


def test_a_stream_tells_its_time_with_its_first_chunk(path: Path) -> None:
    chunks = [{"id": "c", "created": 1_700_000_001, "choices": [{"index": 0, "delta": {"content": "hi"}}]}]
    (answer,) = (
        one for one in read(path, {"request": request(ASK), "response": chunks}) if isinstance(one, AgentTurn)
    )
    assert answer.at == 1_700_000_001_000
    done = {"type": "response.completed", "response": {"id": "r", "created_at": 1_700_000_002, "output": []}}
    done["response"]["output"] = [{"type": "message", "role": "assistant", "content": "hi"}]
    found = read(path, {"request": request(ASK), "response": [done]})
    assert {one.at for one in found if isinstance(one, AgentTurn)} == {1_700_000_002_000}


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_a_log_that_is_newest_first_tells_the_same(tmp_path: Path, suffix: str) -> None:
    """As databases write it out: each answer once, from its own record, and no broken call twice."""
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{"}}
    said: list[dict[str, Any]] = [{"role": "user", "content": "do it"}]
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "content": "again"},
    ]
    told = [{"role": "tool", "tool_call_id": "c1", "content": "bad"}, {"role": "user", "content": "and more"}]
    records = []
    for number, turn in enumerate(turns):
        asked = {"request": request(*said), "response": response(turn, f"a{number}")}
        records.append(asked | {"timestamp": 1_760_000_000 + 60 * number})
        said += [turn, *told[number : number + 1]]
    forwards, backwards = tmp_path / f"forwards.{suffix}", tmp_path / f"backwards.{suffix}"
    for path, order in ((forwards, records), (backwards, records[::-1])):
        path.write_text(json.dumps(order) if suffix == "json" else "\n".join(map(json.dumps, order)))
    right, turned = (
        [_anywhere(item) for item in openai_log.read(path, Seen())] for path in (forwards, backwards)
    )
    assert right == turned
    assert len([item for item in right if isinstance(item, AgentTurn)]) == 3


def _anywhere(item: Read) -> Read:
    return msgspec.structs.replace(item, place=Place(""))


def test_lines_backwards_are_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n" + b"x" * 40 + b"\ntwo\n" + b"y" * 41 + b"\nthree")
    found = list(lines(path, 32))
    assert list(lines_backwards(path, 32)) == found[::-1]
    assert [one.place.line if isinstance(one, Quarantined) else one[0].line for one in found] == [
        1,
        3,
        4,
        5,
        6,
    ]


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"status_code": 200, "body": body}])
def test_a_stream_that_was_logged_as_it_came(path: Path, wrap: Any) -> None:
    """Proxies log the raw body; it was told as the answer's text, `data:` and all."""
    chunks = [
        {"id": "r1", "created": 1_700_000_000, "choices": [{"index": 0, "delta": {"content": word}}]}
        for word in ("do", "n\u2028e")  # no line end of a stream
    ]
    body = "".join(f"data: {json.dumps(one, ensure_ascii=False)}\r\n\r\n" for one in chunks)
    for start, one in ((": ping\n\n", "r1"), ("", "r2"), ("event: x\n", "r3")):
        sent = start + body.replace("r1", one) + "data: [DONE]\n\n"
        items = read(path, {"request": request(ASK), "response": wrap(sent)})
        (answer,) = [item for item in items if isinstance(item, AgentTurn)]
        assert (answer.text, answer.id, answer.at) == ("don\u2028e", one, AT)
    (plain,) = [
        item.text
        for item in read(path, {"request": request(ASK), "response": "data: is a word"})
        if isinstance(item, AgentTurn)
    ]
    assert plain == "data: is a word"


def test_the_same_words_answer_another_request(path: Path) -> None:
    """Without ids and history an answer was known by its words alone: of two "done" one was lost."""
    said = {"role": "assistant", "content": "done"}
    records = [
        {
            "session_id": "s",
            "request": request({"role": "user", "content": ask}),
            "response": {"choices": [{"message": said}]},
        }
        for ask in ("one", "two", "two")
    ]
    items = read(path, *records)
    told = [item.text for item in items if isinstance(item, UserTurn | AgentTurn)]
    assert told == ["one", "done", "two", "done"]


def test_what_litellm_left_out_is_not_told(path: Path) -> None:
    """All calls of a proxy were one session's, one request of a person's, and each tool call a broken one."""
    mark = "redacted-by-litellm"
    call = {"id": "call_abcdef", "type": "function", "function": {"name": "ls", "arguments": mark}}
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"required": ["at"]}}}

    def row(n: int, **said: Any) -> dict[str, Any]:
        answer = {**response({"role": "assistant", **said}, f"r{n}"), "model": "m-1"}
        asked = [{"role": "user", "content": mark}]
        return {"id": f"r{n}", "model": "m", "messages": asked, "tools": [tool], "response": answer}

    items = read(path, row(1, content=mark), row(2, content=None, tool_calls=[call]), row(3, content=mark))
    assert kinds(items) == [*["SessionStart", "AgentTurn"] * 2, "ToolUse", "SessionStart", "AgentTurn"]
    assert [(one.id, one.text, one.model) for one in items if isinstance(one, AgentTurn)] == [
        (f"r{n}", "", "m-1") for n in (1, 2, 3)
    ]
    told = next(one for one in items if isinstance(one, ToolUse))
    assert (told.name, told.arguments, told.invalid, told.checked) == ("ls", "", "", "")
    assert len({one.session for one in items if not isinstance(one, Quarantined)}) == 3
