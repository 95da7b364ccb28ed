"""Qwen Code's chats: `~/.qwen/projects/FOLDER/chats/ID.jsonl`, a record a line.

The messages are Gemini's (`parts`), the records around them resemble Claude Code's. A session that goes on is
written on in its file. Not for: `--openai-logging`, which is a log of requests.

Source: QwenLM/qwen-code (`services/chatRecordingService.ts`), and chats that 0.24.4 wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import Change, Open, arguments_of, changes_of, edits
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Edit,
    Outcome,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, first_text, json_text, opening
from cursorbench.sessions.refusals import refusal
from cursorbench.sessions.seen import Seen

KIND = "qwen-code"

_TYPES = frozenset({"user", "assistant", "tool_result", "system"})
_FIELDS = {"uuid", "sessionId", "type", "timestamp"}
_PERSON = frozenset({"", "mid_turn_user_message"})  # subtypes of what somebody typed
_AUTOMATIC: dict[str, Automatic] = {"cron": "command", "agent_launch_prompt": "sub_agent"}  # of others: meta
# the files, or lines of them, that VS Code has open: its extension writes them before a person's words
_OPENED = re.compile(
    r"(?:(?:[A-Za-z]:[\\/]|\\\\|/[^\s/][^\n/]{0,200}/|Untitled-)[^\n]{1,1000}\n)+\n(?=\s*\S)"
)
# of a command that ran, whose call has ended well until 0.14 whatever the command did
_EXIT = re.compile(r"^Exit Code: (?!0\b|\()\S+\nSignal: ", re.MULTILINE)
_OUTCOMES: dict[str, Outcome] = {"success": "ok", "cancelled": "interrupted"}


def recognises(_path: Path, head: bytes) -> bool:
    """Records as Claude Code has them, whose messages have parts, or whose system events have a payload."""
    return any(map(_is_line, first_objects(head)))


def _is_line(value: object) -> bool:
    record = table_of(value)
    if not record.keys() >= _FIELDS or text_of(record.get("type")) not in _TYPES:
        return False
    return "parts" in table_of(record.get("message")) or "systemPayload" in record


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one chat, as far as no copy of it told them."""
    chat = _Chat(seen)
    for found in json_lines(path, _is_line):
        yield from [found] if isinstance(found, Quarantined) else chat.items(*found)


class _Chat:
    def __init__(self, seen: Seen) -> None:
        self._seen, self._open = seen, Open()

    def items(self, place: Place, record: dict[str, Any]) -> Iterator[Read]:
        """The items of a record, behind the session's beginning."""
        session, one = text_of(record.get("sessionId")), text_of(record.get("uuid"))
        own: dict[str, Any] = {
            "session": session,
            "at": milliseconds(record.get("timestamp")),
            "place": place,
        }
        told = list(self._told(record, one, own))
        if not self._seen.first(session, one):
            return
        if any(not isinstance(item, Quarantined) for item in told):
            about = {"agent": KIND, "cwd": text_of(record.get("cwd"))}
            about |= {"version": text_of(record.get("version")), "branch": text_of(record.get("gitBranch"))}
            yield from opening(self._seen, session, place, own["at"], **about)
        yield from told

    def _told(self, record: dict[str, Any], one: str, own: dict[str, Any]) -> Iterator[Read]:
        kind, subtype = text_of(record.get("type")), text_of(record.get("subtype"))
        parts = [table_of(part) for part in list_of(table_of(record.get("message")).get("parts"))]
        if kind == "user":
            texts, told = [text_of(part["text"]) for part in parts if "text" in part], {"id": one, **own}
            automatic = _automatic(record, subtype)
            if not automatic and texts and (opened := _OPENED.match(texts[0])):
                yield UserTurn(text=opened[0].strip(), automatic="meta", **told)
                texts[0] = texts[0][opened.end() :]
            yield from spoken.turns_of(texts, automatic, **told)
        elif kind == "assistant":
            yield from self._said(parts, one, text_of(record.get("model")), own)
        elif kind == "tool_result":
            result = table_of(record.get("toolCallResult"))
            for part in parts:
                if given := table_of(part.get("functionResponse")):
                    yield from self._ended(given, result, own)
        elif kind != "system":
            yield Quarantined(own["place"], "unknown_type")
        elif subtype == "slash_command":
            payload = table_of(record.get("systemPayload"))
            if payload.get("phase") == "invocation" and (typed := text_of(payload.get("rawCommand"))):
                yield UserTurn(id=one, text=typed, automatic="command", **own)

    def _said(self, parts: list[dict[str, Any]], one: str, model: str, own: dict[str, Any]) -> Iterator[Read]:
        said = [part for part in parts if "text" in part]
        text = "".join(text_of(part["text"]) for part in said if part.get("thought") is not True)
        thinking = "".join(text_of(part["text"]) for part in said if part.get("thought") is True)
        if text.strip() or thinking.strip():
            yield AgentTurn(id=one, text=text, thinking=thinking, model=model, **own)
        for call in (table_of(part.get("functionCall")) for part in parts):
            if name := text_of(call.get("name")):
                given, known = arguments_of(call.get("args")), text_of(call.get("id"))
                changes = changes_of(name, given.table)
                self._open.add(known, changes)
                yield ToolUse(
                    id=known, name=name, model=model, arguments=given.text, invalid=given.invalid, **own
                )
                yield from edits(changes, "proposed", call=known, **own)

    def _ended(self, given: dict[str, Any], result: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        known, response = text_of(given.get("id")), table_of(given.get("response"))
        text = first_text(response, "error", "output") or json_text(response)
        outcome = _OUTCOMES.get(text_of(result.get("status")), "error")
        reason = None if outcome == "ok" else refusal(text)
        outcome = outcome if reason is None else "rejected"
        if outcome == "ok" and given.get("name") == "run_shell_command" and _EXIT.search(text):
            outcome = "error"
        yield ToolEnd(id=known, outcome=outcome, text=text, reason=reason or "", **own)
        changes = self._open.take(known)
        if outcome == "rejected":
            yield from edits(changes, "rejected", call=known, **own)
        elif outcome == "ok" and changes:
            yield from _applied(known, changes, table_of(result.get("resultDisplay")), own)


def _automatic(record: dict[str, Any], subtype: str) -> Automatic:
    """Why nobody typed it, where its fields tell."""
    if subtype not in _PERSON:
        return _AUTOMATIC.get(subtype, "meta")
    return "" if text_of(record.get("provenance")) in ("", "real_user") else "meta"


def _applied(
    known: str, changes: tuple[Change, ...], shown: dict[str, Any], own: dict[str, Any]
) -> Iterator[Read]:
    """The change with the whole file where the chat has that, else as it was asked for."""
    before, after, path = (
        shown.get("originalContent"),
        shown.get("newContent"),
        text_of(shown.get("filePath")),
    )
    if path and isinstance(after, str) and shown.get("truncatedForSession") is not True:
        before = before if isinstance(before, str) else ""
        yield Edit(id=known, path=path, status="applied", before=before, after=after, **own)
    else:
        yield from edits(changes, "applied", call=known, **own)
