"""Logs of lines whose objects were printed indented: the same log, wherever a line of it is torn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cursorbench.sessions import glued, kinds
from cursorbench.sessions.items import Place, Quarantined, UserTurn

SESSION = {"sessionId": "5a0c1f6e-1111-4222-8333-444455556666", "timestamp": "2026-01-02T03:04:05Z"}
LINES: list[dict[str, Any]] = [
    {"type": "user", "uuid": "u1", **SESSION, "message": {"role": "user", "content": "fix }\n{ it"}},
    {"type": "user", "uuid": "u2", **SESSION, "message": {"role": "user", "content": []}, "meta": {}},
    {"type": "user", "uuid": "u3", **SESSION, "message": {"role": "user", "content": "again"}},
]


def printed(*values: object, indent: int | str | None = 2) -> str:
    return "".join(json.dumps(value, indent=indent) + "\n" for value in values)


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_what_jq_prints_is_the_log(tmp_path: Path, indent: int | str) -> None:
    """It was of no known kind, or each of its lines was quarantined."""
    plain, path = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    plain.write_text(printed(*LINES, indent=None))
    path.write_text(printed(*LINES, indent=indent))
    assert kinds.kind_of(path) == kinds.kind_of(plain) == "claude-code"
    told = [[structs.replace(item, place=Place("")) for _, item in kinds.read(one)] for one in (plain, path)]
    assert told[0] == told[1]
    assert [one.text for one in told[1] if isinstance(one, UserTurn)] == ["fix }\n{ it", "again"]


def is_line(value: object) -> bool:
    return isinstance(value, dict) and "uuid" in value


@pytest.mark.parametrize("backwards", [False, True])
def test_a_torn_object_takes_no_other_along(tmp_path: Path, backwards: bool) -> None:
    path = tmp_path / "log.jsonl"
    whole, torn = printed({"a": 1}), printed({"b": {"c": 2}})
    path.write_text(whole + torn[:12] + "\n" + whole + "noise\n\n" + '{"d": 3}\n{}\n' + torn[:-3])
    found = list(glued.json_lines(path, is_line, backwards=backwards))
    told = [one.place.line if isinstance(one, Quarantined) else one[1] for one in found]
    expected = [{"a": 1}, 4, {"a": 1}, 10, {"d": 3}, {}, 14]
    assert told == (expected[::-1] if backwards else expected)


def test_a_first_line_that_is_torn_makes_no_such_log_of_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("{\n" + printed(*LINES, indent=None))
    found = [one for one in glued.json_lines(path, is_line) if not isinstance(one, Quarantined)]
    assert [one[1]["uuid"] for one in found] == ["u1", "u2", "u3"]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("phoenix", [False, True])
def test_spans_of_pythons_sdk_and_of_phoenix(tmp_path: Path, indent: int | None, phoenix: bool) -> None:
    """`ConsoleSpanExporter`, and `GET /v1/projects/NAME/spans`, which gives the newest first."""

    def span(n: int, told: dict[str, Any]) -> dict[str, Any]:
        ids = {"context": {"trace_id": "0xab", "span_id": f"0x{n}"}, "parent_id": None, "name": "chat m"}
        times = {"start_time": f"2026-11-01T10:00:0{n}.250Z", "end_time": f"2026-11-01T10:00:0{n + 1}.500Z"}
        call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "session.id": "s"}
        of = {"status_code": "OK", "span_kind": "LLM"} if phoenix else {"status": {"status_code": "UNSET"}}
        return {**ids, **times, **of, "attributes": {**call, **told}, "events": []}

    first, second = ([{"role": "user", "parts": [{"type": "text", "content": text}]}] for text in ("a", "b"))
    answers = [[{"role": "assistant", "parts": [{"type": "text", "content": text}]}] for text in ("x", "y")]
    asked = [first, [*first, *answers[0], *second]]
    spans = [
        span(n, {"gen_ai.input.messages": json.dumps(one), "gen_ai.output.messages": json.dumps(answers[n])})
        for n, one in enumerate(asked)
    ]
    path = tmp_path / "spans.json"
    path.write_text(
        json.dumps({"data": spans[::-1], "next_cursor": None}, indent=indent)
        if phoenix
        else printed(*spans, indent=indent)
    )
    assert kinds.kind_of(path) == "otel"
    found = [one for _, one in kinds.read(path)]
    assert not [one for one in found if isinstance(one, Quarantined)]
    told = [(one.text, getattr(one, "duration_ms", None), one.at) for one in found if hasattr(one, "text")]
    at = 1_793_527_200_250
    assert told == [("a", None, at), ("x", 1250.0, at), ("b", None, at + 1000), ("y", 1250.0, at + 1000)]
