"""Conversations of OpenHands: `conversations/ID/events/event-00000-ID.json`, an event a file, or a list.

A folder of events is read as one log when the first of its files is. Times are those of a wall clock. Not
for: trajectories of OpenHands before its SDK (`action`, `observation` and `args` in each).

Source: OpenHands/software-agent-sdk (`sdk/event`, `persistence_const.py`, the events among its tests).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import Open, arguments_of, changes_of, edits
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Edit,
    Interrupt,
    Outcome,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import json_document, list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, mentions, opening, records
from cursorbench.sessions.seen import Seen

KIND = "openhands"

_FILE = re.compile(r"event-\d{5,}-[0-9a-fA-F-]{8,}\.json")
_STATE = "base_state.json"
_FIELDS = {"id", "timestamp", "source", "kind"}
_SOURCES = frozenset({"agent", "user", "environment", "hook"})
_IGNORED = """
    ACPToolCallEvent CondensationRequest ConversationErrorEvent ConversationStateUpdateEvent
    HookExecutionEvent LLMCompletionLogEvent StreamingDeltaEvent SystemPromptEvent TokenEvent
"""
_SILENT = frozenset(_IGNORED.split())
_SUMMARIES = frozenset({"Condensation", "CondensationSummaryEvent"})
_NO_WORDS = "User rejected the action"  # where a person gave no reason
_FINISH = "finish"
_RUNS = (None, 0, -1)  # exit codes of commands that ended well, or still run


def recognises(path: Path, head: bytes) -> bool:
    """An event of the SDK's, or the state beside a folder of them."""
    if path.name == _STATE:
        return mentions(head, "execution_status", "agent") or (path.parent / "events").is_dir()
    return any(map(_is_event, first_objects(head))) or (
        _FILE.fullmatch(path.name) is not None and mentions(head, *_FIELDS)
    )


def _is_event(value: dict[str, Any]) -> bool:
    if not value.keys() >= _FIELDS:
        return False
    return text_of(value["source"]) in _SOURCES and "Event" in text_of(value["kind"])


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of a conversation; of the state beside it, and of its other files, none."""
    if path.name == _STATE:
        return
    if _FILE.fullmatch(path.name):
        if seen.first("", f"{KIND}:{path.parent.resolve()}"):
            yield from _folder(path.parent, seen)
        return
    log: _Log | None = None
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, event = found
        log = log or _Log(seen, text_of(event.get("id")) or path.stem, {})
        yield from log.items(place, event)


def _folder(folder: Path, seen: Seen) -> Iterator[Read]:
    """The events of a folder in their order."""
    beside = folder.parent / _STATE
    state = json_document(beside) if beside.is_file() else None
    log = _Log(seen, folder.parent.name, state if isinstance(state, dict) else {})
    for one in sorted(each for each in folder.iterdir() if _FILE.fullmatch(each.name)):
        event = json_document(one)
        if isinstance(event, dict):
            yield from log.items(Place(str(one)), event)
        else:
            yield event if isinstance(event, Quarantined) else Quarantined(Place(str(one)), "not an event")


def _texts(content: object) -> str:
    parts = (
        [content] if isinstance(content, str) else [table_of(part).get("text") for part in list_of(content)]
    )
    return "\n".join(part for part in parts if isinstance(part, str))


class _Log:
    def __init__(self, seen: Seen, session: str, state: dict[str, Any]) -> None:
        self._seen, self._open = seen, Open()
        self._session = text_of(state.get("id")) or session
        self._model = text_of(table_of(table_of(state.get("agent")).get("llm")).get("model"))
        self._cwd = text_of(table_of(state.get("workspace")).get("working_dir"))
        self._calls: set[str] = set()  # that have not ended

    def items(self, place: Place, event: dict[str, Any]) -> Iterator[Read]:
        """The items of an event, behind the session's beginning."""
        one, at = text_of(event.get("id")), milliseconds(event.get("timestamp"))
        own: dict[str, Any] = {"session": self._session, "at": at, "place": place}
        told = list(self._told(text_of(event.get("kind")), one, event, own))
        if not told or not self._seen.first("", f"{KIND}:{one}" if one else ""):
            return
        if any(not isinstance(item, Quarantined) for item in told):
            yield from opening(self._seen, self._session, place, at, agent=KIND, cwd=self._cwd)
        yield from told

    def _told(self, kind: str, one: str, event: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        if kind == "MessageEvent":
            yield from self._message(one, event, own)
        elif kind == "ActionEvent":
            yield from self._called(one, event, own)
        elif kind == "ObservationEvent":
            yield from self._observed(event, table_of(event.get("observation")), own)
        elif kind == "AgentErrorEvent":
            yield from self._ended(event, "error", text_of(event.get("error")), own)
        elif kind == "UserRejectObservation":
            reason = text_of(event.get("rejection_reason"))
            by_person = event.get("rejection_source", "user") == "user"
            yield from self._ended(event, "rejected" if by_person else "error", reason, own)
        elif kind in ("PauseEvent", "InterruptEvent"):
            yield Interrupt(id=one, during="tool" if self._calls else "answer", **own)
            self._calls.clear()  # what was stopped has no end
        elif kind in _SUMMARIES:
            if summary := text_of(event.get("summary")):
                yield UserTurn(id=one, text=summary, automatic="continuation", **own)
        elif kind not in _SILENT:
            yield Quarantined(own["place"], "unknown_type")

    def _message(self, one: str, event: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        message = table_of(event.get("llm_message"))
        text, thought = _texts(message.get("content")), text_of(message.get("reasoning_content"))
        if event.get("source") == "agent":
            if text.strip() or thought.strip():
                yield AgentTurn(id=one, text=text, thinking=thought, model=self._model, **own)
            return
        why: Automatic = "" if event.get("source") == "user" else "meta"
        yield from spoken.turns(text, "sub_agent" if text_of(event.get("sender")) else why, id=one, **own)

    def _called(self, one: str, event: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        text, thought = _texts(event.get("thought")), text_of(event.get("reasoning_content"))
        if event.get("tool_name") == _FINISH:  # by which the agent answers
            text = "\n".join(filter(None, [text, text_of(table_of(event.get("action")).get("message"))]))
        if text.strip() or thought.strip():
            yield AgentTurn(id=one, text=text, thinking=thought, model=self._model, **own)
        known, name = text_of(event.get("tool_call_id")), text_of(event.get("tool_name"))
        given = arguments_of(table_of(event.get("tool_call")).get("arguments"))
        changes = changes_of(name, given.table)
        self._open.add(known, changes)
        self._calls.add(known)
        yield ToolUse(
            id=known, name=name, model=self._model, arguments=given.text, invalid=given.invalid, **own
        )
        yield from edits(changes, "proposed", call=known, **own)

    def _observed(self, event: dict[str, Any], told: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        failed = told.get("is_error") is True or told.get("exit_code") not in _RUNS
        whole, before, path = told.get("new_content"), told.get("old_content"), text_of(told.get("path"))
        full: dict[str, Any] | None = None
        if path and isinstance(whole, str) and told.get("command") != "view":
            was = before if isinstance(before, str) else ""
            full = {"path": path, "before": was, "after": whole}
        yield from self._ended(event, "error" if failed else "ok", _texts(told.get("content")), own, full)

    def _ended(
        self,
        event: dict[str, Any],
        outcome: Outcome,
        text: str,
        own: dict[str, Any],
        full: dict[str, Any] | None = None,
    ) -> Iterator[Read]:
        """A call's end; what it changed is the whole file where that is told (`full`)."""
        known = text_of(event.get("tool_call_id"))
        self._calls.discard(known)
        reason = text if outcome == "rejected" and text != _NO_WORDS else ""
        yield ToolEnd(id=known, outcome=outcome, text=text, reason=reason, **own)
        changes = self._open.take(known)
        if outcome == "ok" and full and changes:
            yield Edit(id=known, status="applied", **full, **own)
        elif outcome in ("ok", "rejected"):
            yield from edits(changes, "applied" if outcome == "ok" else "rejected", call=known, **own)
