"""The events of Claude Code (claude_code.*) among log records.

Reference: code.claude.com/docs/en/monitoring-usage. Texts are there only when the user's settings let them be
logged; turns, decisions and results are told without them too. For `otel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import arguments_of, changes_of, plain
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Edit,
    Feedback,
    Interrupt,
    Outcome,
    Place,
    Quarantined,
    Read,
    Status,
    ToolEnd,
    ToolUse,
)
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import milliseconds, table_of, text_of
from cursorbench.sessions.records import first_text, number, opening
from cursorbench.sessions.seen import Seen

_PREFIX = "claude_code."
_MAIN = ("repl_main_thread", "sdk")  # `query_source` of the turns a user waits for
_HIDDEN = "<REDACTED>"
_PASSED_OVER = {
    "api_error", "api_refusal", "api_request_body", "api_response_body", "api_retries_exhausted",
    "permission_mode_changed", "auth", "mcp_server_connection", "internal_error", "plugin_installed",
    "plugin_loaded", "skill_activated", "at_mention", "hook_registered", "hook_execution_start",
    "hook_execution_complete", "hook_plugin_metrics", "compaction", "subagent_completed",
    "retention_sweep", "managed_settings_resolved", "system_prompt",
}  # fmt: skip


def is_event(record: Record) -> bool:
    """Whether Claude Code wrote this log record."""
    body = record.body if isinstance(record.body, str) else ""
    service = text_of(record.attributes.get("service.name"))
    return record.name.startswith(_PREFIX) or body.startswith(_PREFIX) or service == "claude-code"


def event(record: Record, place: Place, seen: Seen) -> Iterator[Read]:
    """The items of one event."""
    told = record.attributes
    body = record.body if isinstance(record.body, str) and record.body.startswith(_PREFIX) else ""
    name = first_text(
        {"name": told.get("event.name"), "body": body, "own": record.name}, "name", "body", "own"
    )
    name = name.removeprefix(_PREFIX)
    handle = _EVENTS.get(name)
    if handle is None:
        if name not in _PASSED_OVER:
            yield Quarantined(place, "unknown_type")
        return
    session = text_of(told.get("session.id"))
    at = milliseconds(told.get("event.timestamp")) or record.at
    if not seen.first(session, _key(told, at)):
        return
    version = first_text(told, "app.version", "service.version")
    yield from opening(seen, session, place, at, agent="claude-code", version=version)
    yield from handle(told, {"session": session, "at": at, "place": place}, seen)


def _key(told: dict[str, Any], at: int | None) -> str:
    """Exports are sent again after a failure; the number of the event in its session tells them."""
    sequence = told.get("event.sequence")
    if isinstance(sequence, str):
        sequence = int(sequence) if sequence.isdecimal() and len(sequence) < 20 else None
    known = isinstance(sequence, int) and not isinstance(sequence, bool) and abs(sequence) < 1 << 63
    return f"otel:event:{sequence}:{at}" if known else ""


def _prompt(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    text = _shown(told.get("prompt"))
    command = bool(text_of(told.get("command_name")))
    one = first_text(told, "message.uuid", "prompt.id")
    yield from spoken.turns(text, "command" if command else "", id=one, **common)


def _answer(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """What the user was told; the texts of helpers and of a compaction are left out."""
    if not _is_main(told):
        return
    one, model = first_text(told, "request_id", "message.uuid"), text_of(told.get("model"))
    yield AgentTurn(id=one, text=_shown(told.get("response")), model=model, **common)


def _request(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """A call of the model: its time and duration, without its text. Those of helpers are left out."""
    if not _is_main(told):
        return
    yield AgentTurn(
        id=text_of(told.get("request_id")),
        text="",
        model=text_of(told.get("model")),
        first_token_ms=number(told.get("ttft_ms")),
        duration_ms=number(told.get("duration_ms")),
        **common,
    )


def _is_main(told: dict[str, Any]) -> bool:
    source = text_of(told.get("query_source"))
    return not source or source.startswith(_MAIN)


def _decision(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """Only a refusal ends a call; what was allowed ends by its result."""
    if told.get("decision") != "reject":
        return
    source, session = text_of(told.get("source")), common["session"]
    yield from _use(told, common, seen)
    if not seen.first(session, _call_key("end", told)):
        return
    outcome: Outcome = "rejected"
    if source == "user_abort":
        outcome = "interrupted"
    elif source and not source.startswith("user"):
        outcome = "error"  # a hook or the settings refused it, nobody was asked
    text = f"refused by {plain(source)}" if outcome == "error" else ""
    one = text_of(told.get("tool_use_id"))
    yield ToolEnd(id=one, outcome=outcome, text=text, **common)
    if outcome == "interrupted":
        yield Interrupt(id=one, during="tool", **common)
    yield from _edits(told, common, "rejected")


def _result(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    yield from _use(told, common, seen)
    if not seen.first(common["session"], _call_key("end", told)):
        return
    ok = _true(told.get("success"))
    one, text = text_of(told.get("tool_use_id")), first_text(told, "error", "error_type")
    yield ToolEnd(id=one, outcome="ok" if ok else "error", text="" if ok else text, **common)
    if ok:
        yield from _edits(told, common, "applied")
    commit = text_of(arguments_of(told.get("tool_parameters")).table.get("git_commit_id"))
    if commit:
        yield Commit(id=one, sha=commit, **common)


def _survey(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """The user's choice when asked how the agent is doing."""
    response, survey = told.get("response"), text_of(told.get("survey_type")) or "session"
    if told.get("event_type") == "responded" and isinstance(response, str | int | float) and response != "":
        one, value = (
            text_of(told.get("appearance_id")),
            response if isinstance(response, str) else number(response),
        )
        if value is not None:
            yield Feedback(id=one, target="", name=f"claude_code.survey.{survey}", value=value, **common)


def _use(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """The call itself, which no event tells before it is decided or done.

    Claude Code cuts long arguments short, so text that is no JSON says nothing of the agent here.
    """
    if seen.first(common["session"], _call_key("call", told)):
        one, name = text_of(told.get("tool_use_id")), first_text(told, "tool_name", "name")
        arguments = arguments_of(told.get("tool_input") or told.get("tool_parameters")).text
        yield ToolUse(id=one, name=name, arguments=arguments, **common)


def _edits(told: dict[str, Any], common: dict[str, Any], status: Status) -> Iterator[Edit]:
    """By name only: Claude Code cuts the texts in its telemetry short."""
    name = first_text(told, "tool_name", "name")
    for logged in (told.get("tool_input"), told.get("tool_parameters")):
        paths = dict.fromkeys(
            change.path for change in changes_of(name, table_of(arguments_of(logged).table))
        )
        for path in paths:
            yield Edit(id=text_of(told.get("tool_use_id")), path=path, status=status, **common)
        if paths:
            return


def _call_key(what: str, told: dict[str, Any]) -> str:
    one = text_of(told.get("tool_use_id"))
    return f"otel:{what}:{one}" if one else ""


def _shown(value: object) -> str:
    text = text_of(value)
    return "" if text == _HIDDEN else text


def _true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


_EVENTS: dict[str, Callable[[dict[str, Any], dict[str, Any], Seen], Iterator[Read]]] = {
    "user_prompt": _prompt,
    "assistant_response": _answer,
    "api_request": _request,
    "tool_decision": _decision,
    "tool_result": _result,
    "feedback_survey": _survey,
}
