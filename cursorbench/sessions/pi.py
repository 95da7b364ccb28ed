"""Pi's sessions: `~/.pi/agent/sessions/FOLDER/TIME_ID.jsonl`, a header and an entry a line.

Entries form a tree by `parentId`; a person who goes back to an earlier one goes on in the same file. A fork
(`/fork`, `--fork`) is a file of its own that begins with a copy. Not for: `--mode json`, which prints events.

Source: badlogic/pi-mono (`docs/session.md`, `session-manager.ts`, the sessions among its tests), and
sessions that 0.74.2 wrote; a published one of oh-my-pi (July 2026), whose edits name lines by hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import Change, Open, arguments_of, changes_of, edits
from cursorbench.sessions.chat import plain_text
from cursorbench.sessions.glued import json_lines
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Feedback,
    Interrupt,
    Outcome,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, json_text, opening
from cursorbench.sessions.seen import Seen

KIND = "pi"

_ROLES = frozenset({"user", "assistant", "toolResult"})  # of messages that versions of all times have
_SUMMARIES = frozenset(
    {"compaction", "branch_summary", "compactionSummary", "branchSummary"}  # the last two in git-ai's tests
)
_SILENT = frozenset(
    {"model_change", "thinking_level_change", "custom", "label", "session_info", "active_tools_change"}
)
_ABORTED = ("Command aborted", "Operation aborted")  # what tools say that the user stopped, at the end
_BROKEN_OFF = frozenset({"aborted", "error"})
_NUMBERED = re.compile(r"([ +-]) *\d{1,9}\|(.*)", re.DOTALL)  # a line of oh-my-pi's differences
_BETWEEN = "..."  # stands for lines that it leaves out


def recognises(_path: Path, head: bytes) -> bool:
    """A header with id and folder, or an entry whose message is of one of Pi's roles."""
    return any(map(_is_line, first_objects(head)))


def _is_line(value: object) -> bool:
    entry = table_of(value)
    if entry.get("type") == "session":
        return entry.keys() >= {"id", "timestamp", "cwd"}
    message = table_of(entry.get("message"))
    told = (
        entry.get("type") == "message" and text_of(message.get("role")) in _ROLES and "timestamp" in message
    )
    return told and "timestamp" in entry


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one session, as far as no file before had them."""
    session = _Session(path, seen)
    for found in json_lines(path, _is_line):
        yield from [found] if isinstance(found, Quarantined) else session.items(*found)


class _Session:
    def __init__(self, path: Path, seen: Seen) -> None:
        self._seen, self._open = seen, Open()
        self._id, self._about = path.stem.rpartition("_")[2], {"agent": KIND}
        self._in_tool = False  # a tool of the last answer was stopped
        self._asked = 0  # requests of a person on the way to the last entry
        self._way: dict[str, int] = {}  # the same, of each entry
        self._last = ""

    def items(self, place: Place, entry: dict[str, Any]) -> Iterator[Read]:
        """The items of an entry, behind the session's beginning."""
        if entry.get("type") == "session":
            self._id = text_of(entry.get("id")) or self._id
            self._about["cwd"] = text_of(entry.get("cwd"))
            return
        at = milliseconds(entry.get("timestamp"))
        own: dict[str, Any] = {"session": self._id, "at": at, "place": place}
        told = [*self._moved(entry, own), *self._told(entry, own)]
        self._went(entry, told)
        copied = {name: value for name, value in entry.items() if name not in ("id", "parentId")}
        if not told or not self._seen.first("", f"{KIND}:{json_text(copied)}"):
            return
        if any(not isinstance(item, Quarantined) for item in told):
            yield from opening(self._seen, self._id, place, at, **self._about)
        yield from told

    def _moved(self, entry: dict[str, Any], own: dict[str, Any]) -> Iterator[Feedback]:
        """That a person went back to an earlier entry, with the number of their requests that this left."""
        if not self._last or "parentId" not in entry:
            return
        parent = text_of(entry["parentId"])
        before = self._way.get(parent, 0 if entry["parentId"] is None else self._asked)
        if before < self._asked:
            yield Feedback(target="", name="rolled_back_turns", value=float(self._asked - before), **own)
        self._asked = before

    def _went(self, entry: dict[str, Any], told: list[Read]) -> None:
        self._asked += any(isinstance(item, UserTurn) and not item.automatic for item in told)
        if one := text_of(entry.get("id")):
            self._way[one], self._last = self._asked, one

    def _told(self, entry: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        kind, message = text_of(entry.get("type")), table_of(entry.get("message"))
        one = {**own, "id": text_of(entry.get("id"))}
        if kind == "message":
            yield from self._message(text_of(message.get("role")), message, one)
        elif kind in _SUMMARIES:
            yield UserTurn(text=text_of(entry.get("summary")), automatic="continuation", **one)
        elif kind == "custom_message":
            yield from spoken.turns(plain_text(entry.get("content")), "meta", **one)
        elif kind not in _SILENT:
            yield Quarantined(own["place"], "unknown_type")

    def _message(self, role: str, message: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content)
        texts = [text_of(part.get("text")) for part in map(table_of, parts) if part.get("type") == "text"]
        if role == "user":
            yield from spoken.turns_of(texts or [""], **own)
        elif role == "assistant":
            yield from self._answer([table_of(part) for part in parts], message, own)
        elif role == "toolResult":
            yield from self._ended(message, "\n".join(texts), own)
        elif role == "bashExecution":  # what a person ran: `!COMMAND`
            yield UserTurn(text=f"!{text_of(message.get('command'))}", automatic="command", **own)
        elif role in ("custom", "hookMessage", "branchSummary", "compactionSummary"):
            automatic: Automatic = "continuation" if "summary" in message else "meta"
            told = text_of(message.get("summary")) or "\n".join(texts)
            yield UserTurn(text=told, automatic=automatic, **own)
        else:
            yield Quarantined(own["place"], "a message with an unknown role")

    def _answer(
        self, parts: list[dict[str, Any]], message: dict[str, Any], own: dict[str, Any]
    ) -> Iterator[Read]:
        """What the agent said and asked for; calls of an answer that broke off were never made."""
        model, stop = text_of(message.get("model")), text_of(message.get("stopReason"))
        text = "".join(text_of(part.get("text")) for part in parts if part.get("type") == "text")
        thought = "".join(text_of(part.get("thinking")) for part in parts if part.get("type") == "thinking")
        calls = [part for part in parts if part.get("type") == "toolCall" and stop not in _BROKEN_OFF]
        if text.strip() or thought.strip():
            yield AgentTurn(text=text, thinking=thought, model=model, **own)
        for call in calls:
            given, known = arguments_of(call.get("arguments")), text_of(call.get("id"))
            about, name = {**own, "id": known}, text_of(call.get("name"))
            changes = changes_of(name, given.table)
            self._open.add(known, changes)
            yield ToolUse(name=name, model=model, arguments=given.text, invalid=given.invalid, **about)
            about.pop("id")
            yield from edits(changes, "proposed", call=known, **about)
        if stop == "aborted":
            yield Interrupt(during="tool" if self._in_tool else "answer", **own)
        self._in_tool = False

    def _ended(self, message: dict[str, Any], text: str, own: dict[str, Any]) -> Iterator[Read]:
        known = text_of(message.get("toolCallId"))
        outcome: Outcome = "ok"
        if message.get("isError") is True:
            outcome = "interrupted" if text.rstrip().endswith(_ABORTED) else "error"
        self._in_tool = self._in_tool or outcome == "interrupted"
        about = {**own, "id": known}
        yield ToolEnd(outcome=outcome, text=text, **about)
        about.pop("id")
        changes = _changed(self._open.take(known), table_of(message.get("details")))
        yield from edits(changes if outcome == "ok" else (), "applied", call=known, **about)


def _changed(asked: tuple[Change, ...], details: dict[str, Any]) -> tuple[Change, ...]:
    """The changes that a call asked for; of those whose call has no text what its result says was changed."""
    if any((one.before, one.after, one.diff) != (None, None, None) for one in asked):
        return asked
    files = [table_of(one) for one in list_of(details.get("perFileResults"))] or [details]
    told = [(text_of(one.get("path")), _unified(text_of(one.get("diff")))) for one in files]
    return (
        tuple(Change(path or asked[0].path, diff=diff) for path, diff in told if asked and diff is not None)
        or asked
    )


def _unified(diff: str) -> str | None:
    """The lines of a difference without their numbers; None where they have none."""
    lines = [line for one in diff.split("\n") if (line := _NUMBERED.fullmatch(one))]
    return "".join(f"{line[1]}{line[2]}\n" for line in lines if line[1] != " " or line[2] != _BETWEEN) or None
