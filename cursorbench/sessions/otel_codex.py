"""The events of Codex (codex.*) among log records: what was asked, what was decided, what calls gave.

Reference: developers.openai.com/codex/config-advanced (Observability and telemetry), openai/codex
(`otel/src/events`), and what Codex 0.163 sends. Prompts are there only with `log_user_prompt`; what the agent
says is never told. For `otel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cursorbench.sessions import codex_told, spoken
from cursorbench.sessions.calls import Arguments, arguments_of, edits, json_text, plain
from cursorbench.sessions.items import (
    AgentTurn,
    Interrupt,
    Outcome,
    Place,
    Read,
    Status,
    ToolEnd,
    ToolUse,
)
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import milliseconds, text_of
from cursorbench.sessions.records import number, opening
from cursorbench.sessions.seen import Seen

_PREFIX = "codex."
_HIDDEN = "[REDACTED]"
_REQUEST = "codex.api_request"


def is_event(record: Record) -> bool:
    """Whether Codex wrote this log record of a session."""
    told = record.attributes
    name = text_of(told.get("event.name"))
    return name.startswith(_PREFIX) and bool(text_of(told.get("conversation.id")))


def event(record: Record, place: Place, seen: Seen) -> Iterator[Read]:
    """The items of one event; Codex has many that tell of its own workings, and more with each version."""
    told = record.attributes
    name = text_of(told.get("event.name"))
    handle = _EVENTS.get(name)
    if handle is None:
        return
    session = text_of(told.get("conversation.id"))
    at = milliseconds(told.get("event.timestamp")) or record.at
    call = text_of(told.get("call_id"))
    if not seen.first(session, f"otel:codex:{name}:{at}:{call}"):  # exports are sent again after a failure
        return
    yield from opening(seen, session, place, at, agent="codex", version=text_of(told.get("app.version")))
    yield from handle(told, {"session": session, "at": at, "place": place}, seen)


def _prompt(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    text = text_of(told.get("prompt"))
    yield from spoken.turns("" if text == _HIDDEN else text, "", id="", **common)


def _request(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """An answer of the model's: its duration, without its text."""
    if number(told.get("http.response.status_code")) == 200:
        model, lasted = text_of(told.get("model")), number(told.get("duration_ms"))
        yield AgentTurn(id="", text="", model=model, duration_ms=lasted, **common)


def _decision(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """Only who stops the turn ends a call here. One that was allowed or refused has a result, which tells."""
    if plain(told.get("decision")).lower().startswith("abort"):
        yield from _end(told, common, seen, "interrupted", "")
        yield Interrupt(id=text_of(told.get("call_id")), during="tool", **common)


def _result(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """`success` of a command tells that it ran; its output tells how it ended."""
    yield from _use(told, common, seen)
    text, outcome = codex_told.ending(told.get("output"))
    if outcome == "ok" and told.get("success") not in (True, "true"):
        outcome = "error"
    yield from _end(told, common, seen, outcome, "" if outcome == "ok" else text)


def _use(told: dict[str, Any], common: dict[str, Any], seen: Seen) -> Iterator[Read]:
    """The call itself, which no event tells before it is done."""
    call = text_of(told.get("call_id"))
    if seen.first(common["session"], f"otel:call:{call}"):
        given, _ = _arguments(told)
        yield ToolUse(id=call, name=text_of(told.get("tool_name")), arguments=given.text, **common)


def _end(
    told: dict[str, Any], common: dict[str, Any], seen: Seen, outcome: Outcome, text: str
) -> Iterator[Read]:
    call = text_of(told.get("call_id"))
    if not seen.first(common["session"], f"otel:end:{call}"):
        return
    yield ToolEnd(id=call, outcome=outcome, text=text, **common)
    if outcome in ("ok", "rejected") and told.get("arguments") is not None:
        given, raw = _arguments(told)
        changes = codex_told.asked(text_of(told.get("tool_name")), given.table, raw)
        status: Status = "applied" if outcome == "ok" else "rejected"
        yield from edits(changes, status, call=call, **common)


def _arguments(told: dict[str, Any]) -> tuple[Arguments, str]:
    """A call's arguments, and the text of a tool that takes one: a patch."""
    value = told.get("arguments")
    raw = value if isinstance(value, str) and not value.lstrip().startswith("{") else ""
    return (Arguments(json_text(raw)) if raw else arguments_of(value)), raw


_EVENTS: dict[str, Callable[[dict[str, Any], dict[str, Any], Seen], Iterator[Read]]] = {
    "codex.user_prompt": _prompt,
    "codex.api_request": _request,
    "codex.tool_decision": _decision,
    "codex.tool_result": _result,
}
