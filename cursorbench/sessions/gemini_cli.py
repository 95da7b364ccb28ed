"""Gemini CLI's chats: `~/.gemini/tmp/PROJECT/chats/session-*.json`, one document; since April 2026 `.jsonl`,
a line for each message and for what becomes of them (`gemini_history.py`).

Sub-agents are `chats/SESSION/ID.json`. Not for: `logs.json` beside them (what was typed, commands too), and
`diffStat`, which takes line ends for a person's changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken, steered
from cursorbench.sessions.calls import arguments_of, changes_of, edits
from cursorbench.sessions.gemini_history import REWOUND, History, texts_of
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Edit,
    Feedback,
    Interrupt,
    Outcome,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
)
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import (
    first_objects,
    first_text,
    json_text,
    mentions,
    opening,
    records,
)
from cursorbench.sessions.refusals import refusal, stopped
from cursorbench.sessions.seen import Seen

KIND = "gemini-cli"

_HEAD = {"sessionId", "projectHash"}
_BESIDE = {"logs.json": {"sessionId", "messageId", "message"}, ".project_root": set[str]()}
_ALTERED = re.compile(r"User modified the `(?:new_string|content)`")
_CANCELLED = {"Request cancelled.", "User cancelled the request."}
_EXIT = re.compile(r"^Exit Code: (?!0\b|\()\S", re.MULTILINE)
_NO = re.compile(  # to a plan, to planning, to a question: such a call ends well
    r"Plan rejected\. (?:User feedback: (.*?)\n\nThe plan is stored at: |No feedback provided\.)"
    r"|User (?:cancelled (?:the plan approval dialog|entering Plan Mode)|dismissed ask_user dialog)\b",
    re.DOTALL,
)
_ASKED = {"exit_plan_mode", "enter_plan_mode", "ask_user"}
_RESPONSE = "[Function Response: "  # what a file that was named with @ holds


def recognises(path: Path, head: bytes) -> bool:
    """A chat by what it begins with."""
    first = next(iter(first_objects(head)), {})
    if path.name in _BESIDE:
        return first.keys() >= _BESIDE[path.name]
    return first.keys() >= _HEAD or (not first and mentions(head, *_HEAD, "startTime"))


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one chat, as far as no copy of it told them."""
    if path.name in _BESIDE:
        return
    head: dict[str, Any] = {}
    history = History()
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, record = found
        if record.keys() >= _HEAD:
            head = head or record
        for one in map(table_of, list_of(record.get("messages")) if "messages" in record else [record]):
            if "type" in one:
                history.add(place, one)
            elif isinstance(to := one.get("$rewindTo"), str):
                history.rewind(place, to)
            elif isinstance(whole := table_of(one.get("$set")).get("messages"), list):
                history.replace(place, whole)
            elif not one.keys() <= {*head, "$set", "$rewindTo"}:
                yield Quarantined(place, "a message without a type")
    chat = _Chat(path, seen, head)
    for place, message in history.told.values():
        yield from chat.items(message, place)


class _Chat:
    def __init__(self, path: Path, seen: Seen, head: dict[str, Any]) -> None:
        own = text_of(head.get("sessionId")) or path.stem
        self._theirs = head.get("kind") == "subagent"
        self._parent = path.parent.name if self._theirs else ""
        self._session = f"{self._parent}/agent-{own}" if self._parent else own
        self._seen, self._at = seen, milliseconds(head.get("startTime"))
        project = path.parents[2] if self._theirs and len(path.parents) > 2 else path.parent.parent
        self._cwd = ""
        with suppress(OSError, UnicodeDecodeError):
            self._cwd = (project / ".project_root").read_text(encoding="utf-8")[:4096].strip()

    def items(self, message: dict[str, Any], place: Place) -> Iterator[Read]:
        """The items of a message, behind the session's beginning."""
        kind, one = text_of(message.get("type")), text_of(message.get("id"))
        at = milliseconds(message.get("timestamp"))
        own: dict[str, Any] = {"session": self._session, "at": at, "place": place}
        told = list(self._told(kind, one, message, own))
        if told:
            about = {"agent": KIND, "cwd": self._cwd, "parent": self._parent}
            yield from opening(self._seen, self._session, place, self._at or at, **about)
        yield from told

    def _told(self, kind: str, one: str, message: dict[str, Any], own: dict[str, Any]) -> Iterator[Read]:
        content = message.get("content")
        text = _text(content)
        if kind == "user":
            if self._first("said", one):
                yield from self._user(message, one, own)
        elif kind == REWOUND:
            gone = list_of(message.get("texts"))
            if (back := _asked(gone)) and self._first(f"back {len(gone)}", one):
                yield Feedback(target="", name="rolled_back_turns", value=back, **own)
        elif kind == "gemini":
            model, thinking = text_of(message.get("model")), _thinking(message)
            # without a model it is the client's word in the model's place, in parts as the model sees them
            if (text or thinking) and (model or isinstance(content, str)) and self._first("said", one):
                yield AgentTurn(id=one, text=text, model=model, thinking=thinking, **own)
            for call in map(table_of, list_of(message.get("toolCalls"))):
                yield from self._call(call, model, own)
        elif kind == "info" and text in _CANCELLED and self._first("said", one):
            yield Interrupt(id=one, **own)
        elif kind not in ("info", "error", "warning"):
            yield Quarantined(own["place"], "unknown_type")

    def _user(self, message: dict[str, Any], one: str, own: dict[str, Any]) -> Iterator[Read]:
        """What stands under `user`: what calls gave, too, with what a person says meanwhile."""
        if any("functionResponse" in table_of(part) for part in list_of(message.get("content"))):
            for text in texts_of(message):
                said: Automatic = self._automatic("") if steered.at(text, 0) else "tool_result"
                yield from spoken.turns(text, said, id=one, **own)
            return
        typed = _text(message.get("displayContent")) or _text(message.get("content"))
        yield from spoken.turns(typed, self._automatic(typed), id=one, **own)

    def _automatic(self, text: str) -> Automatic:
        if text.startswith(_RESPONSE):
            return "tool_result"
        return "sub_agent" if self._theirs else ""

    def _call(self, call: dict[str, Any], model: str, own: dict[str, Any]) -> Iterator[Read]:
        one, name, given = text_of(call.get("id")), text_of(call.get("name")), arguments_of(call.get("args"))
        changes = changes_of(name, given.table)
        if self._first("call", one):
            yield ToolUse(id=one, name=name, model=model, arguments=given.text, invalid=given.invalid, **own)
            yield from edits(changes, "proposed", call=one, **own)
        status = text_of(call.get("status"))
        if status not in ("success", "error", "cancelled") or not self._first("end", one):
            return  # it was running still
        ended = own | {"at": milliseconds(call.get("timestamp")) or own["at"]}
        text = _given(call.get("result"))
        outcome, reason = _outcome(status, name, text)
        yield ToolEnd(id=one, outcome=outcome, text=text, reason=reason, **ended)
        if outcome == "rejected":
            yield from edits(changes, "rejected", call=one, **ended)
        elif outcome == "ok" and changes:
            yield from _applied(one, changes, table_of(call.get("resultDisplay")), ended)
            if _ALTERED.search(text):
                yield Feedback(target=one, name="user_modified", value=True, **ended)

    def _first(self, what: str, one: str) -> bool:
        return self._seen.first(self._session, f"{what} {one}" if one else "")


def _applied(
    one: str, changes: tuple[Any, ...], shown: dict[str, Any], own: dict[str, Any]
) -> Iterator[Read]:
    """The change as the chat shows it, with the whole file, else as it was asked for."""
    before, after = shown.get("originalContent"), shown.get("newContent")
    path = first_text(shown, "filePath", "fileName")
    if path and isinstance(after, str):
        before = before if isinstance(before, str) else ""
        yield Edit(id=one, path=path, status="applied", before=before, after=after, **own)
    else:
        yield from edits(changes, "applied", call=one, **own)


def _outcome(status: str, name: str, text: str) -> tuple[Outcome, str]:
    """How a call ended, and what was said when it was refused."""
    if status in ("cancelled", "error") and (reason := refusal(text)) is not None:
        return "rejected", reason
    if status == "cancelled":
        return "interrupted", ""
    if status == "error":
        return "interrupted" if stopped(text) else "error", ""
    if name in _ASKED and (no := _NO.match(text)):
        return "rejected", (no[1] or "").strip()
    return "error" if name == "run_shell_command" and _EXIT.search(text) else "ok", ""


def _text(content: object, thought: bool = False) -> str:
    """The texts of a message's parts, or the thoughts among them."""
    if isinstance(content, str):
        return "" if thought else content
    parts = [table_of(part) for part in list_of(content)]
    return "\n".join(
        text_of(part["text"]) for part in parts if "text" in part and (part.get("thought") is True) == thought
    )


def _thinking(message: dict[str, Any]) -> str:
    """The thoughts before an answer."""
    thoughts = [table_of(one) for one in list_of(message.get("thoughts"))]
    told = "\n".join(f"{text_of(t.get('subject'))} {text_of(t.get('description'))}" for t in thoughts)
    return told.strip() or _text(message.get("content"), thought=True)


def _asked(gone: list[Any]) -> int:
    """How many requests of a person are among messages, of which these are the texts."""
    said = (spoken.parts("\n".join(map(text_of, texts))) for texts in map(list_of, gone) if texts)
    return sum(any(not part.automatic for part in parts) for parts in said)


def _given(result: object) -> str:
    """What the model was given as the call's result."""
    responses = (
        table_of(table_of(table_of(part).get("functionResponse")).get("response")) for part in list_of(result)
    )
    return "\n".join(first_text(one, "error", "output") or json_text(one) for one in responses if one)
