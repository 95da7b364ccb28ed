"""Logs of the kinds of which there is no real sample, of the shapes their formats document; from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

WORDS = ("still", "wrong", "please", "rename", "total", "and", "run", "the", "tests", "again", "it", "fails")


def write(folder: Path, random: Random, each: int = 6) -> None:
    """`each` logs of every kind into `folder`."""
    for kind, (suffix, make) in KINDS.items():
        for number in range(each):
            (folder / f"{kind}-{number}{suffix}").write_text(make(random), encoding="utf-8")


def _words(random: Random) -> str:
    return " ".join(random.choices(WORDS, k=random.randint(1, 20)))


def _jsonl(random: Random, makers: list[Callable[[Random, int], dict[str, Any]]]) -> str:
    lines = [random.choice(makers)(random, number) for number in range(random.randint(3, 20))]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _continue(random: Random) -> str:
    def base(name: str, **fields: Any) -> Callable[[Random, int], dict[str, Any]]:
        def make(random: Random, n: int) -> dict[str, Any]:
            told = {key: value(random) if callable(value) else value for key, value in fields.items()}
            head = {"eventName": name, "schema": "0.2.0", "timestamp": f"2026-01-25T10:00:{n % 60:02}.000Z"}
            return {**head, "userId": "u", "userAgent": "VS Code", **told}

        return make

    def yes(random: Random) -> bool:
        return random.random() < 0.5

    return _jsonl(random, [
        base("autocomplete", accepted=yes, completionId="c1", prompt=_words, completion=_words),
        base("chatInteraction", sessionId="s1", prompt=_words, completion=_words, modelName="m"),
        base("chatFeedback", sessionId="s1", completion=_words, feedback=yes),
        base("editInteraction", prompt=_words, completion=_words, filepath="a.py"),
        base("editOutcome", previousCode=_words, newCode=_words, accepted=yes, filepath="a.py"),
        base("toolUsage", toolCallId="t1", functionName="edit", accepted=yes, succeeded=yes),
        base("nextEditOutcome", completionId="c2", accepted=yes, fileUri="file:///a.py", completion=_words),
        base("tokensGenerated", model="m", promptTokens=10, generatedTokens=5),
    ])  # fmt: skip


def _deep(levels: int) -> dict[str, Any]:
    return {"not": _deep(levels - 1)} if levels else {"type": "string"}


def _doubling() -> dict[str, Any]:
    parts = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(5)}
    return {"$defs": {**parts, "a5": {"type": "string"}}, "$ref": "#/$defs/a0"}


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    {"properties": {"path": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(p+)+$": {}}},
    {"properties": {"path": {"oneOf": [{"const": "a"}, {"enum": ["b", 1]}]}}, "unevaluatedItems": False},
    {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"path": {"type": "foo"}}},
    {"properties": {"path": {"multipleOf": 0.5}, "all": {"items": {"$ref": "#"}, "uniqueItems": True}}},
    _deep(40), _deep(200), _doubling(),
)  # fmt: skip
ARGUMENTS = (
    '{"path": "a"}', '{"path": "' + "a" * 40 + '!"}', '{"path": 1' + "0" * 400 + "}", "", "[1", '{"path"',
    '{"all": [[1], {"all": []}, 1, 1.0]}', "{" + '"' + "p" * 40 + '!": 1}',
)  # fmt: skip


def _tools(random: Random) -> list[dict[str, Any]]:
    schema = random.choice(SCHEMAS)
    return [
        random.choice((
            {"type": "function", "function": {"name": "edit", "parameters": schema}},
            {"type": "function", "name": "edit", "parameters": schema},
            {"name": "edit", "input_schema": schema},
        ))
    ]  # fmt: skip


def _attributes(**values: Any) -> list[dict[str, Any]]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return [
        {"key": key.replace("__", "."), "value": {kinds[type(value)]: value}} for key, value in values.items()
    ]


def _otel(random: Random) -> str:
    def span(random: Random, n: int) -> dict[str, Any]:
        said = [{"role": "user", "parts": [{"type": "text", "content": _words(random)}]}]
        call = {"type": "tool_call", "id": f"t{n}", "name": "edit", "arguments": random.choice(ARGUMENTS)}
        answered = [{"role": "assistant", "parts": [{"type": "text", "content": "ok"}, call]}]
        told = _attributes(
            gen_ai__operation__name="chat", gen_ai__conversation__id="c", gen_ai__request__model="m",
            gen_ai__input__messages=json.dumps(said), gen_ai__output__messages=json.dumps(answered),
            gen_ai__usage__output_tokens=7, gen_ai__tool__definitions=json.dumps(_tools(random)),
        )  # fmt: skip
        one = {
            "traceId": "t",
            "spanId": str(n),
            "name": "chat m",
            "startTimeUnixNano": str(n),
            "attributes": told,
        }
        return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [one]}]}]}

    def log(name: str, **fields: Any) -> Callable[[Random, int], dict[str, Any]]:
        def make(random: Random, n: int) -> dict[str, Any]:
            told = _attributes(event__name=name, session__id="s", event__sequence=n, **fields)
            record = {"timeUnixNano": str(1_700_000_000_000_000_000 + n), "attributes": told}
            return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}

        return make

    return _jsonl(random, [
        span,
        log("user_prompt", prompt="do it", prompt_length=5),
        log("tool_decision", tool_name="Edit", decision="reject", source="user_reject", tool_use_id="t1"),
        log("tool_result", tool_name="Edit", success="true", tool_input='{"file_path": "a"}'),
        log("api_request", model="m", duration_ms=900.5, output_tokens=9),
        log("gen_ai.evaluation.result", gen_ai__evaluation__name="good"),
    ])  # fmt: skip


def _tensorzero(random: Random) -> str:
    return _jsonl(random, [
        lambda random, n: {"metric_name": "merged", "value": random.random() < 0.5, "inference_id": f"i{n}"},
        lambda random, n: {"metric_name": "rating", "value": random.random(), "episode_id": f"e{n}"},
        lambda random, n: {"metric_name": "comment", "value": _words(random), "inference_id": f"i{n}"},
    ])  # fmt: skip


def _openai(random: Random) -> str:
    def request(random: Random, n: int) -> dict[str, Any]:
        turns = [
            {"role": ("user", "assistant")[i % 2], "content": _words(random)} for i in range(1 + 2 * (n % 3))
        ]
        return {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, *turns],
            "user": "ada",
            "tools": _tools(random),
        }

    def answer(random: Random, n: int) -> dict[str, Any]:
        function = {"name": "edit", "arguments": random.choice(ARGUMENTS)}
        call = {"id": f"t{n}", "type": "function", "function": function}
        message = {"role": "assistant", "content": _words(random), "tool_calls": [call]}
        return {"id": f"r{n}", "created": 1_700_000_000 + n, "model": "m", "choices": [{"message": message}]}

    return _jsonl(random, [
        lambda random, n: {"request": request(random, n), "response": answer(random, n)},
        lambda random, n: {"custom_id": str(n), "url": "/v1/chat/completions", "body": request(random, n)},
        lambda random, n: {"custom_id": str(n), "response": {"status_code": 200, "body": answer(random, n)}},
        lambda random, n: {**request(random, n), "response": answer(random, n)},
    ])  # fmt: skip


def _cursor_export(random: Random) -> str:
    whose = random.choices(("**User**", "**Cursor**"), k=random.randint(1, 12))
    turns = [f"{one}\n\n{_words(random)}" for one in whose]
    exported = "_Exported on 25.1.2026 at 10:00:00 GMT+1 from Cursor (2.4.1)_"
    return "\n\n---\n\n".join([f"# {_words(random)}\n{exported}", *turns]) + "\n"


def _git_ai(random: Random) -> str:
    lines, prompts = [], {}
    for number in range(random.randint(1, 4)):
        key = f"{random.getrandbits(64):016x}"
        ranges = ",".join(f"{start}-{start + 3}" for start in range(1, random.randint(2, 40), 5))
        lines += [random.choice((f"dir/f{number}.py", f'"with blank {number}.py"')), f"  {key} {ranges}"]
        agent = {"tool": "cursor", "id": f"s{number}", "model": "m"}
        said = [{"type": "user", "text": _words(random)}, {"type": "assistant", "text": "ok"}]
        prompts[key] = {"agent_id": agent, "messages": said, "accepted_lines": 4, "overriden_lines": 1}
    told = {"schema_version": "authorship/3.0.0", "base_commit_sha": "c0ffee" * 6, "prompts": prompts}
    return "\n".join([*lines, "---", json.dumps(told, indent=random.choice((None, 2)))])


KINDS: dict[str, tuple[str, Callable[[Random], str]]] = {
    "continue": (".jsonl", _continue),
    "otel": (".jsonl", _otel),
    "tensorzero": (".jsonl", _tensorzero),
    "openai-log": (".jsonl", _openai),
    "cursor-export": (".md", _cursor_export),
    "git-ai": ("", _git_ai),
}
