"""Damaged logs of the kinds that are JSON Lines, and damaged notes: no exception, no good line lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cursorbench.sessions import agent_trace, continue_dev, git_ai, openai_log, otel, tensorzero
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.kinds import Adapter
from cursorbench.sessions.seen import Seen


def _attributes(**values: str) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


def _log(**values: str) -> dict[str, Any]:
    record = {"timeUnixNano": "1700000000000000000", "attributes": _attributes(session__id="s", **values)}
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": [record]}]}]}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _span(asked: str, answered: str) -> dict[str, Any]:
    told = {
        "gen_ai__input__messages": json.dumps([{"role": "user", "parts": [_text(asked)]}]),
        "gen_ai__output__messages": json.dumps([{"role": "assistant", "parts": [_text(answered)]}]),
    }
    span = {"traceId": "t", "spanId": "1", "name": "chat", "attributes": _attributes(**told)}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


LOGS: dict[Any, tuple[str, list[dict[str, Any]]]] = {
    agent_trace: (
        "traces.jsonl",
        [
            {
                "version": "0.1.0",
                "id": f"r{i}",
                "timestamp": "2026-01-25T10:00:00Z",
                "vcs": {"type": "git", "revision": "c0ffee"},
                "files": [
                    {
                        "path": "a.py",
                        "conversations": [{"url": "u", "ranges": [{"start_line": 1, "end_line": i}]}],
                    }
                ],
            }
            for i in range(1, 4)
        ]
        + [
            {
                "schema": "agent-trace/v0.1.0", "session_id": "s", "file_path": "b.py", "start_line": 3,
                "end_line": 4, "content_hash": "h", "tool_use_id": "t", "timestamp": "2026-01-25T10:00:01Z",
            }
        ],
    ),
    continue_dev: (
        "events.jsonl",
        [
            {"eventName": "autocomplete", "completionId": "c", "accepted": True, "userAgent": "u"},
            {"eventName": "editOutcome", "filepath": "a.py", "accepted": False, "newCode": "b"},
            {"eventName": "chatInteraction", "sessionId": "s", "prompt": "<user>\nhi\n", "completion": "y"},
            {"eventName": "chatFeedback", "sessionId": "s", "completion": "y", "feedback": True},
            {"eventName": "toolUsage", "toolCallId": "t", "functionName": "f", "accepted": True},
            {"eventName": "quickEdit", "prompt": "p", "path": "b", "diffs": [{"type": "new", "line": "l"}]},
        ],
    ),
    otel: (
        "otlp.jsonl",
        [
            _span("one", "two"),
            _log(event__name="user_prompt", prompt="hello"),
            _log(event__name="tool_decision", tool_name="Edit", decision="reject", source="user_abort"),
            _log(event__name="tool_result", tool_name="Write", success="true", tool_input='{"path":"a"}'),
            _log(event__name="gen_ai.evaluation.result", gen_ai__evaluation__name="m",
                 gen_ai__evaluation__score__label="good"),
        ],
    ),
    tensorzero: (
        "feedback.jsonl",
        [
            {"metric_name": "m", "value": True, "inference_id": "i"},
            {"metric_name": "comment", "value": "fine", "episode_id": "e"},
            {
                "request": {"metric_name": "f", "value": 1.5, "inference_id": "j"},
                "response": {"feedback_id": "k"},
            },
        ],
    ),
    openai_log: (
        "requests.jsonl",
        [
            {
                "request": {"model": "m", "messages": [{"role": "user", "content": f"question {i}"}]},
                "response": {"id": f"r{i}", "choices": [{"message": {"role": "assistant", "content": "a"}}]},
            }
            for i in range(3)
        ]
        + [{"custom_id": "b", "body": {"input": [{"type": "function_call_output", "output": "o"}]}}],
    ),
}  # fmt: skip
NOTE = b"""a.py
  0123456789abcdef 1-4,9
"b c.py"
  s_0123456789abcd::t_00000000000001 3
  h_0123456789abcd 5-6
---
{"schema_version": "authorship/3.0.0", "base_commit_sha": "c0ffee", "prompts": {"0123456789abcdef":
{"agent_id": {"tool": "cursor", "id": "p", "model": "m"}, "accepted_lines": 5, "messages": [
{"type": "user", "text": "do"}, {"type": "tool_use", "name": "edit", "input": {"a": 1}}]}},
"sessions": {"s_0123456789abcd": {"agent_id": {"tool": "claude", "id": "s", "model": "m"}}}}
"""
FUZZ = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def written(log: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(one).encode() for one in log]


def read(adapter: Adapter, path: Path, data: bytes) -> list[Read]:
    path.write_bytes(data)
    adapter.recognises(path, data[: 64 << 10])
    return list(adapter.read(path, Seen()))


def told(items: list[Read]) -> list[str]:
    """The items without their places, and without what was quarantined."""
    found = []
    for item in items:
        if not isinstance(item, Quarantined):
            assert isinstance(item.place, Place)
            found.append(repr(item).replace(repr(item.place), ""))
    return found


@pytest.fixture(params=LOGS, ids=lambda adapter: adapter.KIND)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path, list[bytes]]:
    name, log = LOGS[request.param]
    return request.param, tmp_path / name, written(log)


def test_samples_are_recognised_and_read_whole(case: tuple[Any, Path, list[bytes]]) -> None:
    adapter, path, lines = case
    data = b"\n".join(lines)
    assert adapter.recognises(path, data)
    assert [one.KIND for one in LOGS if one.recognises(path, data)] == [adapter.KIND]
    items = read(adapter, path, data)
    assert items
    assert not [item for item in items if isinstance(item, Quarantined)]


@FUZZ
@given(data=st.data())
def test_a_garbage_line_leaves_the_others_as_they_are(
    case: tuple[Any, Path, list[bytes]], data: st.DataObject
) -> None:
    adapter, path, lines = case
    garbage = data.draw(
        st.binary(max_size=60).map(lambda b: b.replace(b"\n", b""))
        | st.sampled_from(
            [b"{", b"[", b"[]", b"null", b'"text"', b"1e999", b"{}", b"\xff\xfe", b'{"a": NaN}']
        )
    )
    place = data.draw(st.integers(0, len(lines)))
    whole = read(adapter, path, b"\n".join(lines))
    damaged = read(adapter, path, b"\n".join([*lines[:place], garbage, *lines[place:]]))
    assert told(damaged) == told(whole)


@FUZZ
@given(data=st.data())
def test_changed_bytes_raise_nothing_and_lose_no_other_line(
    case: tuple[Any, Path, list[bytes]], data: st.DataObject
) -> None:
    adapter, path, lines = case
    which = data.draw(st.integers(0, len(lines) - 1))
    line = bytearray(lines[which])
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(
            st.sampled_from(b'{}[]",:0-9eux\\n\xff\x00')
        )
    damaged = read(adapter, path, b"\n".join([*lines[:which], bytes(line), *lines[which + 1 :]]))
    others = read(adapter, path, b"\n".join([*lines[:which], *lines[which + 1 :]]))
    kept = told(damaged)
    assert [one for one in told(others) if one not in kept and "SessionStart" not in one] == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@FUZZ
@given(data=st.data())
def test_no_type_of_any_field_raises(case: tuple[Any, Path, list[bytes]], data: st.DataObject) -> None:
    adapter, path, lines = case
    record = json.loads(data.draw(st.sampled_from(lines)))
    table = record
    while True:
        if isinstance(table, list):
            table = table[0]
            continue
        key = data.draw(st.sampled_from(sorted(table)))
        inner = table[key]
        if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        if isinstance(inner, list) and not isinstance(inner[0], dict):
            break
        table = inner
    table[key] = data.draw(VALUES)
    for item in read(adapter, path, json.dumps(record).encode()):
        json.dumps(repr(item))


def _with_every_text(value: Any, put: str) -> Iterator[Any]:
    """The value once for each text in it, as a key or not, with another text there."""
    if isinstance(value, str):
        yield put
    for key in value if isinstance(value, dict) else ():
        yield {put if one == key else one: inner for one, inner in value.items()}
        yield from ({**value, key: changed} for changed in _with_every_text(value[key], put))
    for i, inner in enumerate(value) if isinstance(value, list) else ():
        yield from ([*value[:i], changed, *value[i + 1 :]] for changed in _with_every_text(inner, put))


def test_nothing_of_the_content_is_in_a_reason(case: tuple[Any, Path, list[bytes]]) -> None:
    adapter, path, lines = case
    reasons: set[str] = set()
    for line in lines:
        for changed in _with_every_text(json.loads(line), "gen_ai.marker-7"):
            for data in (whole := json.dumps(changed).encode()), whole[:-1], whole.replace(b"7", b"7\xff"):
                found = read(adapter, path, data)
                reasons |= {item.reason for item in found if isinstance(item, Quarantined)}
    assert "not valid JSON" in reasons
    assert not [one for one in reasons if re.search("marker|[0-9]", one)]


@pytest.mark.parametrize(
    "value",
    [
        b"9" * 4000,
        b"9" * 5000,
        b"-1",
        b"1e308",
        b"[" * 900 + b"]" * 900,
        b'"' + b"9" * 5000 + b'"',
        b'"\\u0000"',
    ],
    ids=["large", "huge", "negative", "float", "deep", "digits", "nul"],
)
def test_extreme_values_in_every_field(case: tuple[Any, Path, list[bytes]], value: bytes) -> None:
    adapter, path, lines = case
    for line in lines:
        for key in json.loads(line):
            changed = json.loads(line)
            changed[key] = "\0here"
            data = json.dumps(changed).encode().replace(b'"\\u0000here"', value)
            found = read(adapter, path, data + b"\n" + lines[0])
            assert told(found), "the good line at least"


@FUZZ
@given(data=st.data())
def test_damaged_notes(tmp_path: Path, data: st.DataObject) -> None:
    note = bytearray(NOTE)
    for _ in range(data.draw(st.integers(1, 6))):
        note[data.draw(st.integers(0, len(note) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(note)))
    for damaged in (bytes(note), bytes(note[:cut])):
        for item in read(git_ai, tmp_path / "note", damaged):
            assert isinstance(item, Read)
            assert item.place.file == str(tmp_path / "note")


@FUZZ
@given(garbage=st.text(alphabet="abc -,0123456789_:", max_size=30))
def test_a_bad_attestation_leaves_the_others(tmp_path: Path, garbage: str) -> None:
    whole = told(read(git_ai, tmp_path / "note", NOTE))
    line = f"a.py\n   {garbage}\n".encode()  # three blanks: never an entry
    damaged = read(git_ai, tmp_path / "note", NOTE.replace(b"a.py\n", line, 1))
    assert told(damaged) == whole
