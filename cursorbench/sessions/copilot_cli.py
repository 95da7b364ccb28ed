"""GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`; Copilot in VS Code writes the same.

A line is {type, data, id, timestamp, parentId}. Sub-agents write into their parent's file and become sessions
of their own. Not for: streamed parts of messages, hooks, and token counts.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import (
    Change,
    Open,
    arguments_of,
    changes_of,
    changes_of_patch,
    edits,
    paths_of,
    remember,
)
from cursorbench.sessions.copilot_told import IGNORED, automatic, content_of, denied, ending, is_log
from cursorbench.sessions.entire_beside import session_of_log
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import (
    AgentTurn,
    Interrupt,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.seen import Seen

KIND = "copilot-cli"
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def recognises(path: Path, head: bytes) -> bool:
    """Lines with the events' types and their data."""
    return is_log(head)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one file of events. Raises OSError when it cannot be read at all."""
    events = _Events(path, seen)
    for found in json_lines(path, _is_line):
        yield from [found] if isinstance(found, Quarantined) else events.line(*found)


def _is_line(value: object) -> bool:
    event = table_of(value)
    known = text_of(event.get("type")) in _HANDLERS or text_of(event.get("type")) in IGNORED
    return known and "id" in event and isinstance(event.get("data"), dict)


class _Where(NamedTuple):
    """An event's place in the log, for all its items."""

    session: str
    at: int | None
    place: Place
    event: str
    sub_agent: bool

    @property
    def fields(self) -> dict[str, Any]:
        return {"session": self.session, "at": self.at, "place": self.place}


class _Events:
    """What is known of the session up to an event."""

    def __init__(self, path: Path, seen: Seen) -> None:
        found = _UUID.findall(path.name) or _UUID.findall(path.parent.name)
        self.session = found[-1] if found else session_of_log(path)
        self.seen, self.agent, self.model, self.thought = seen, "copilot-cli", "", ""
        self.open = Open()
        self.begun: set[str] = set()  # this session and its sub-agents
        self.context: object = None  # where the session works
        self.calls: OrderedDict[str, str] = OrderedDict()  # that were told, and their tools
        self.running: OrderedDict[str, None] = OrderedDict()
        self.rejected: OrderedDict[str, None] = OrderedDict()
        self.by_user: OrderedDict[str, None] = OrderedDict()  # calls that the user made
        self.asking: OrderedDict[str, str] = OrderedDict()  # permission request -> call
        self.past: deque[tuple[str, str, str, tuple[Change, ...]]] = deque(maxlen=50_000)

    def line(self, place: Place, value: dict[str, Any]) -> Iterator[Read]:
        """One event. One that was read before moves the state on and says nothing."""
        kind, data = value.get("type"), value.get("data")
        if not isinstance(kind, str):
            yield Quarantined(place, "no type")
        elif kind in IGNORED:
            return
        elif (handler := _HANDLERS.get(kind)) is None:
            yield Quarantined(place, "unknown_type")
        elif not isinstance(data, dict):
            yield Quarantined(place, f"{kind} without data")
        else:
            if kind == "session.start":
                self.session = text_of(data.get("sessionId")) or self.session
                self.context = data.get("context")
                self.agent = "copilot-vscode" if "vscodeVersion" in data else self.agent
            event, agent = text_of(value.get("id")), text_of(value.get("agentId"))
            agent = agent or text_of(data.get("parentToolCallId"))
            at = milliseconds(value.get("timestamp"))
            where = _Where(agent or self.session, at, place, event, bool(agent))
            self.past.append((event, "", "", ()))
            fresh = self.seen.first(self.session, "" if event == "REDACTED" else event)
            fresh = fresh and (at is None or self.seen.first("", content_of(kind, at, data)))
            if kind == "session.start" and fresh:
                yield from self._started(where, data)
            for item in handler(self, data, where):
                if fresh and not isinstance(item, Quarantined):
                    yield from self._started(where, {})
                if fresh or isinstance(item, Quarantined):
                    yield item

    def _started(self, where: _Where, start: dict[str, Any]) -> Iterator[Read]:
        if where.session in self.begun:
            return
        self.begun.add(where.session)
        if not self.seen.first(where.session, "session start"):
            return
        spawned_by = text_of(start.get("detachedFromSpawningParentSessionId"))
        context = table_of(self.context)  # a sub-agent works where its session does
        yield SessionStart(
            **where.fields,
            agent=self.agent,
            version=text_of(start.get("copilotVersion")),
            cwd=text_of(context.get("cwd")),
            branch=text_of(context.get("branch")),
            commit=text_of(context.get("headCommit")),
            repository=text_of(context.get("repository")),
            parent=self.session if where.sub_agent else spawned_by,
        )

    def _model(self, data: dict[str, Any], _: _Where) -> Iterator[Read]:
        self.model = text_of(data.get("newModel")) or text_of(data.get("selectedModel")) or self.model
        return iter(())

    def _user(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if not isinstance(text := data.get("content"), str):
            yield Quarantined(where.place, "user.message without content")
        else:
            why = automatic(data) or ("sub_agent" if where.sub_agent else "")
            yield from spoken.turns(text, why, **where.fields, id=where.event)

    def _notified(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if text := text_of(data.get("content")):
            yield UserTurn(**where.fields, id=where.event, text=text, automatic="meta")

    def _compacted(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if text := text_of(data.get("summaryContent")):
            yield UserTurn(**where.fields, id=where.event, text=text, automatic="continuation")

    def _reasoning(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if thought := text_of(data.get("content")):
            self.thought = thought
            call = text_of(data.get("reasoningId"))
            yield AgentTurn(**where.fields, id=call, text="", model=self.model, thinking=thought)

    def _message(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        text, thought = text_of(data.get("content")), text_of(data.get("reasoningText"))
        if thought == self.thought:
            thought = ""  # was an event of its own
        self.thought = ""
        if text or thought:
            yield AgentTurn(
                **where.fields,
                id=text_of(data.get("messageId")) or where.event,
                text=text,
                model=text_of(data.get("model")) or self.model,
                thinking=thought,
            )
        elif "content" not in data and "toolRequests" not in data:
            yield Quarantined(where.place, "assistant.message without content")
        for request in list_of(data.get("toolRequests")):
            yield from self._use({**table_of(request), "model": data.get("model")}, where)

    def _began(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        yield from self._use({**data, "name": data.get("toolName")}, where)

    def _use(self, asked: dict[str, Any], where: _Where) -> Iterator[Read]:
        call, name, arguments = text_of(asked.get("toolCallId")), asked.get("name"), asked.get("arguments")
        if call in self.by_user or (call and call in self.calls):
            return
        if not isinstance(name, str) or not name:
            yield Quarantined(where.place, "a tool call without a name")
            return
        given = arguments_of(arguments)
        changes = changes_of(name, given.table)
        if isinstance(arguments, str) and "*** Begin Patch" in arguments and not given.table:
            changes, given = changes_of_patch(arguments), arguments_of({"input": arguments})
        remember(self.calls, call, name)
        remember(self.running, call, None)
        told: dict[str, Any] = {"name": name, "model": text_of(asked.get("model")) or self.model}
        yield ToolUse(**where.fields, **told, id=call, arguments=given.text, invalid=given.invalid)
        yield from self._proposed(call, changes, where)

    def _proposed(self, call: str, changes: tuple[Change, ...], where: _Where) -> Iterator[Read]:
        self.open.add(call, changes)
        yield from edits(changes, "proposed", call=call, **where.fields)

    def _asked_by_user(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        call, given = text_of(data.get("toolCallId")), arguments_of(data.get("arguments"))
        remember(self.by_user, call, None)
        text = text_of(given.table.get("command")) or given.text
        yield UserTurn(**where.fields, id=where.event, text=text, automatic="command")

    def _completed(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        call = text_of(data.get("toolCallId"))
        if call in self.by_user or call in self.rejected or data.get("isUserRequested") is True:
            return
        outcome, text = ending(data, self.calls.get(call, ""))
        yield from self._ended(where, ToolEnd(**where.fields, id=call, outcome=outcome, text=text))

    def _ended(self, where: _Where, end: ToolEnd) -> Iterator[Read]:
        yield end
        call = end.id
        self.running.pop(call, None)
        changes = self.open.take(call)
        if end.outcome == "ok":
            self.past.append((where.event, call, where.session, paths_of(changes)))
            yield from edits(changes, "applied", call=call, **where.fields)
        elif end.outcome == "rejected":
            yield from edits(changes, "rejected", call=call, **where.fields)

    def _permission(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        request = table_of(data.get("permissionRequest"))
        call = text_of(request.get("toolCallId"))
        remember(self.asking, text_of(data.get("requestId")), call)
        path, known = text_of(request.get("fileName")), self.open.take(call)
        self.open.add(call, known)
        if request.get("kind") == "write" and path and not known:
            diff = text_of(request.get("diff")) or None
            yield from self._proposed(call, (Change(path, diff=diff),), where)

    def _decided(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        result = table_of(data.get("result"))
        call = self.asking.pop(text_of(data.get("requestId")), "") or text_of(data.get("toolCallId"))
        if outcome := denied(data):
            remember(self.rejected, call, None)
            words = text_of(result.get("feedback"))
            text, reason = ("", words) if outcome == "rejected" else (words, "")
            end = ToolEnd(**where.fields, id=call, outcome=outcome, text=text, reason=reason)
            yield from self._ended(where, end)

    def _plan_decided(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if data.get("approved") is False:
            call = text_of(data.get("toolCallId")) or text_of(data.get("requestId"))
            reason = text_of(data.get("feedback"))
            yield ToolEnd(**where.fields, id=call, outcome="rejected", reason=reason)

    def _abort(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        if data.get("reason") != "autopilot_credit_limit":
            yield Interrupt(**where.fields, id=where.event, during="tool" if self.running else "answer")
        self.running.clear()

    def _rewound(self, data: dict[str, Any], where: _Where) -> Iterator[Read]:
        target = text_of(data.get("upToEventId"))
        undone: list[tuple[str, str, tuple[Change, ...]]] = []
        for event, call, session, changes in reversed(self.past):
            undone += [(call, session, changes)] if changes else []
            if event == target and not changes:
                break
        else:
            return  # the events were taken out of the log
        for call, session, changes in reversed(undone):
            yield from edits(changes, "undone", call=call, session=session, at=where.at, place=where.place)


_HANDLERS: dict[str, Callable[[_Events, dict[str, Any], _Where], Iterator[Read]]] = {
    "session.start": _Events._model,
    "session.resume": _Events._model,
    "session.model_change": _Events._model,
    "session.compaction_complete": _Events._compacted,
    "session.snapshot_rewind": _Events._rewound,
    "user.message": _Events._user,
    "system.notification": _Events._notified,
    "assistant.reasoning": _Events._reasoning,
    "assistant.message": _Events._message,
    "tool.user_requested": _Events._asked_by_user,
    "tool.execution_start": _Events._began,
    "external_tool.requested": _Events._began,
    "tool.execution_complete": _Events._completed,
    "permission.requested": _Events._permission,
    "permission.completed": _Events._decided,
    "exit_plan_mode.completed": _Events._plan_decided,
    "abort": _Events._abort,
}
