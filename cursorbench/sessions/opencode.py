"""OpenCode: the document that `opencode export SESSION` writes, one session each.

{info, messages: [{info, parts: [...]}]}, which `opencode_v2` makes of OpenCode 2's and `opencode_storage` of
the folder of older versions; a session with a parentID is a sub-agent's. Not for: its database, and tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import opencode_storage, spoken
from cursorbench.sessions.calls import Change, arguments_of, changes_of, edits
from cursorbench.sessions.entire_beside import session_of_log
from cursorbench.sessions.items import (
    AgentTurn,
    Automatic,
    Interrupt,
    Outcome,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.opencode_forks import Copies, keyed
from cursorbench.sessions.opencode_patch import spelt, written
from cursorbench.sessions.opencode_shell import messages_of as own_commands
from cursorbench.sessions.opencode_shell import shell_outcome
from cursorbench.sessions.opencode_times import spent
from cursorbench.sessions.opencode_v2 import info_of, messages_of
from cursorbench.sessions.reading import milliseconds, table_of, text_of
from cursorbench.sessions.seen import Seen

KIND = "opencode"
_START = re.compile(rb'\s*(?:\xef\xbb\xbf)?(?:\[\s*)?\{\s*"(?:info|messages|todos)"\s*:')
_IDS = re.compile(rb'"(?:sessionID|id)"\s*:\s*"ses_|"projectID"\s*:')
_REJECTED = re.compile(r"(?:Error: )?The user (?:rejected permission to use|(?:dismissed|declined) this )")
_FEEDBACK = re.compile(r"^The user rejected permission.{0,80}? feedback:\s*(.*)", re.DOTALL)
_ABORTED = re.compile(
    r"(?:Error: )?(?:Tool execution (?:aborted|interrupted)|.{0,40}\boperation was aborted)", re.IGNORECASE
)
_SILENT = {"agent", "compaction", "file", "retry", "snapshot", "step-finish", "step-start"}
_MASK = "REDACTED"  # by Entire, of what looks like a key
_HIDDEN = {"", _MASK}  # ids that tell nothing


def recognises(path: Path, head: bytes) -> bool:
    """A document that begins with a session's info or messages and has its ids, or a file of its folder."""
    said = opencode_storage.SAID.match(head)
    begins = _START.match(head, said.end() if said else 0)
    return bool(begins and _IDS.search(head)) or opencode_storage.holds(path, head)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one export. Raises OSError when it cannot be read at all."""
    document, damaged = opencode_storage.document(path)
    yield from damaged
    for one in _sessions(document) if isinstance(document, list) else [document]:
        export = table_of(one)
        if isinstance(export.get("messages"), list) and isinstance(export.get("info", {}), dict):
            yield from _Session(path, seen, info_of(export)).read([*own_commands(messages_of(export))])
        else:
            yield Quarantined(Place(str(path)), "not a session with info and messages")


def _sessions(document: list[Any]) -> list[Any]:
    """Sessions; a list of messages, as the server of OpenCode gives it, is put together by session."""
    found: dict[str, dict[str, Any]] = {}
    for one in document:
        info = table_of(table_of(one).get("info"))
        if "parts" not in table_of(one) or not isinstance(session := info.get("sessionID"), str):
            return document
        found.setdefault(session, {"info": {"id": session}, "messages": []})["messages"].append(one)
    return list(found.values())


class _Session:
    """One exported session."""

    def __init__(self, path: Path, seen: Seen, info: dict[str, Any]) -> None:
        self.info, self.seen, self.place = info, seen, Place(str(path))
        self.session = text_of(info.get("id")).replace(_MASK, session_of_log(path)) or path.stem
        self.parent = text_of(info.get("parentID")).replace(_MASK, f"{self.session}/parent")  # its own
        self.reverted, self.reverted_part = (
            text_of(table_of(info.get("revert")).get(name)) for name in ("messageID", "partID")
        )
        self.applied: list[tuple[str, tuple[Change, ...]]] = []  # since the message the user went back to
        self.copies = Copies(seen, self.session, milliseconds(table_of(info.get("time")).get("created")))
        self.asked, self.replayed = "", ""  # a person's last message; the same, if OpenCode's copy is next

    def read(self, messages: list[Any]) -> Iterator[Read]:
        """The session's start and messages, and what the user took back."""
        if self.seen.first(self.session, "session start"):
            yield self._start()
        behind = False
        for number, one in enumerate(messages):
            message = table_of(one)
            info = table_of(message.get("info"))
            if not info or not isinstance(message.get("parts"), list):
                yield Quarantined(self.place, "a message without info and parts")
                continue
            if not behind:
                self.applied = []
                behind = self.reverted not in _HIDDEN and info.get("id") == self.reverted
            yield from self._message(number, info, message["parts"])
        if behind and self.seen.first(self.session, f"reverted to {self.reverted}"):
            for call, changes in self.applied:
                where: dict[str, Any] = {"session": self.session, "at": None, "place": self.place}
                yield from edits(changes, "undone", call=call, **where)

    def _start(self) -> SessionStart:
        info = self.info
        return SessionStart(
            session=self.session,
            id=text_of(info.get("id")),
            at=milliseconds(table_of(info.get("time")).get("created")),
            place=self.place,
            agent="opencode",
            version=text_of(info.get("version")),
            cwd=text_of(info.get("directory")),
            parent=self.parent,
        )

    def _message(self, number: int, info: dict[str, Any], parts: list[Any]) -> Iterator[Read]:
        at, role = milliseconds(table_of(info.get("time")).get("created")), info.get("role")
        line = _id(info.get("id")) or f"{number} {at}"
        where: dict[str, Any] = {"session": self.session, "at": at, "place": self.place}
        if role == "user":
            items = self._user(info, [table_of(part) for part in parts], where)
        elif role == "assistant":
            items = self._assistant(info, parts, where)
        else:
            items = iter([(str(number), Quarantined(self.place, "a message of no known role"))])
        copied = self.copies.told(info, parts, at)
        for key, item in items:
            fresh = not copied and self.seen.first(self.session, f"{line} {key}")
            if fresh or isinstance(item, Quarantined):
                yield item

    def _user(
        self, info: dict[str, Any], parts: list[dict[str, Any]], where: dict[str, Any]
    ) -> Iterator[tuple[str, Read]]:
        """A person's text parts are one turn; parts that OpenCode put beside them are turns of their own."""
        own = [p["text"] for p in parts if p.get("type") == "text" and _typed(p)]
        compacted = any(part.get("type") == "compaction" for part in parts)
        replayed, self.replayed = self.replayed, self.asked if any(map(_overflowed, parts)) else ""
        if own or any(part.get("type") == "file" for part in parts):
            text, mine = "\n".join(own), _id(info.get("id"))
            why: Automatic = "continuation" if compacted or self._again(text, replayed) else ""
            told = spoken.turns(text, why or ("sub_agent" if self.parent else ""), **where, id=mine)
            yield from ((f"text {n or ''}".strip(), item) for n, item in enumerate(told))
        for number, part in enumerate(parts):
            kind, text = part.get("type"), text_of(part.get("text"))
            if kind == "subtask":
                why, text = "command", text_of(part.get("prompt"))
            elif kind == "text":
                why = "continuation" if compacted else "meta"
                text = "" if _typed(part) else text
            else:
                text = ""
                if not isinstance(kind, str) or kind not in _SILENT:
                    yield f"{number}", Quarantined(self.place, "unknown_type")
            if text:
                turn = UserTurn(**where, id=_id(part.get("id")), text=text, automatic=why)
                yield f"{number}", turn

    def _again(self, text: str, replayed: str) -> bool:
        """Whether OpenCode wrote this: where the context overflowed, a copy of what was asked before."""
        if replayed and (text == replayed or text.startswith(f"{replayed}\n[Attached ")):
            return True
        self.asked = text
        return False

    def _assistant(
        self, info: dict[str, Any], parts: list[Any], where: dict[str, Any]
    ) -> Iterator[tuple[str, Read]]:
        last = max((n for n, part in enumerate(parts) if table_of(part).get("type") == "text"), default=-1)
        told: set[str] = set()
        cut = False
        if info.get("summary") is not True or info.get("error"):
            self.replayed = ""  # the copy stands right behind a summary that was written
        for number, part in enumerate(map(table_of, parts)):
            kind = part.get("type")
            if self.reverted_part not in _HIDDEN and part.get("id") == self.reverted_part:
                self.applied = []  # what the message did before it stays
            if kind in ("text", "reasoning"):
                turn = self._turn(info, part, where, spent(info, parts, last) if number == last else None)
                if info.get("summary") is True and isinstance(turn, AgentTurn):
                    yield f"{number}", UserTurn(**where, id=turn.id, text=turn.text, automatic="continuation")
                elif turn is not None:
                    yield f"{number}", turn
            elif kind == "tool":
                for key, item in keyed(self._tool(info, part, where, told), table_of(part.get("state"))):
                    cut = cut or (isinstance(item, ToolEnd) and item.outcome == "interrupted")
                    yield f"{number} {key}", item
            elif kind == "patch":
                changes, call = written(part, map(table_of, parts), sorted(told)), _id(part.get("id"))
                self.applied.append((call, changes))
                for place, item in enumerate(edits(changes, "applied", call=call, **where)):
                    yield f"{number} {place}", item
            elif not isinstance(kind, str) or kind not in _SILENT:
                yield f"{number}", Quarantined(self.place, "unknown_type")
        if table_of(info.get("error")).get("name") == "MessageAbortedError":
            mine = _id(info.get("id"))
            yield "error", Interrupt(**where, id=mine, during="tool" if cut else "answer")

    def _turn(
        self, info: dict[str, Any], part: dict[str, Any], where: dict[str, Any], ms: float | None
    ) -> AgentTurn | Quarantined | None:
        if not isinstance(text := part.get("text"), str):
            return Quarantined(self.place, f"{part['type']} without text")
        if not text:
            return None
        start = milliseconds(table_of(part.get("time")).get("start"))
        thinks = part["type"] == "reasoning"
        at = start if start is not None else where["at"]
        return AgentTurn(
            **{**where, "at": at},
            id=_id(part.get("id")),
            text="" if thinks else text,
            thinking=text if thinks else "",
            model=text_of(info.get("modelID")),
            duration_ms=ms,
        )

    def _tool(
        self, info: dict[str, Any], part: dict[str, Any], where: dict[str, Any], told: set[str]
    ) -> Iterator[Read]:
        name, call, state = part.get("tool"), part.get("callID"), table_of(part.get("state"))
        if not isinstance(name, str) or not name or not state:
            yield Quarantined(self.place, "a tool call without a name or state")
            return
        call = _id(call) or _id(part.get("id"))
        given, time = arguments_of(state.get("input")), table_of(state.get("time"))
        begun = {**where, "at": milliseconds(time.get("start")) or where["at"]}
        ended = {**where, "at": milliseconds(time.get("end")) or begun["at"]}
        model = text_of(info.get("modelID"))
        yield ToolUse(**begun, id=call, name=name, model=model, arguments=given.text, invalid=given.invalid)
        changes = _changes(name, given.table, table_of(state.get("metadata")))
        told.update(spelt(change.path) for change in changes)
        yield from edits(changes, "proposed", call=call, **begun)
        if state.get("status") not in ("completed", "error"):
            return
        outcome, reason = _outcome(state)
        text = text_of(state.get("output")) or text_of(state.get("error"))
        yield ToolEnd(**ended, id=call, outcome=outcome, text=text, reason=reason)
        if outcome == "ok":
            self.applied.append((call, changes))
        if outcome in ("ok", "rejected"):
            yield from edits(changes, "applied" if outcome == "ok" else "rejected", call=call, **ended)


def _id(value: object) -> str:
    return value if isinstance(value, str) and value not in _HIDDEN else ""


def _typed(part: dict[str, Any]) -> bool:
    own = not (part.get("synthetic") is True or part.get("ignored") is True)
    return own and isinstance(part.get("text"), str)


def _overflowed(part: dict[str, Any]) -> bool:
    return part.get("type") == "compaction" and part.get("auto") is True and part.get("overflow") is True


def _outcome(state: dict[str, Any]) -> tuple[Outcome, str]:
    error = text_of(state.get("error"))
    if state.get("status") == "error":
        if _ABORTED.match(error):
            return "interrupted", ""
        feedback = _FEEDBACK.match(error)
        if feedback or _REJECTED.match(error):
            return "rejected", feedback[1].strip() if feedback else ""
        return "error", ""
    return shell_outcome(table_of(state.get("metadata")).get("exit"), text_of(state.get("output"))), ""


def _changes(name: str, table: dict[str, Any], metadata: dict[str, Any]) -> tuple[Change, ...]:
    """The call's changes, with the diff that OpenCode computed where there is one."""
    changes, diff = changes_of(name, table), text_of(metadata.get("diff"))
    if len(changes) == 1 and diff:
        only = changes[0]
        return (Change(only.path, before=only.before, after=only.after, diff=diff),)
    return changes
