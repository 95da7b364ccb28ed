"""Tasks of Cline and its kin, Roo and Kilo: `tasks/ID/api_conversation_history.json`, one list of messages;
and sessions of its command line, `~/.cline/data/sessions/ID/ID.messages.json`, a document with such a list.

What it holds is what the model was sent. Calls may be blocks of their own, and what they gave texts behind
`[NAME for '...'] Result:`; who wrote which of the texts, their words tell (`automatic.py`, `spoken.py`). Not
for: calls written as XML in a text, and `ui_messages.json`, which has the same for the eye.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from cursorbench.sessions.automatic import CALLED
from cursorbench.sessions.calls import Call, Result
from cursorbench.sessions.chat import Answer, Conversation, Message, message_of
from cursorbench.sessions.items import Feedback, Place, Quarantined, Read
from cursorbench.sessions.reading import json_document, list_of, milliseconds, parsed, table_of, text_of
from cursorbench.sessions.records import first_objects, first_text, mentions, opening
from cursorbench.sessions.seen import Seen

KIND = "cline"

_NAME = "api_conversation_history.json"
_SHOWN = "ui_messages.json"  # what the eye saw
_BESIDE = {_SHOWN, "task_metadata.json", "context_history.json", "history_item.json"}
_MESSAGES = ".messages.json"
_SESSION = ("sessionId", "updated_at", "agent", "messages")  # what such a document has
_ID = re.compile(r"\d{10,16}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_AGENTS = {"roo": "roo", "kilo": "kilo"}  # by the folder of the extension; else Cline
_CWD = re.compile(r"^# Current (?:Working|Workspace) Directory \((.{1,1000})\)", re.MULTILINE)
_GAVE = re.compile(rf"\s*({CALLED})\s*(.*)", re.DOTALL)
_FAILED = re.compile(
    r"Command failed with exit code|The tool execution failed with the following error"
    r"|Command exited with (?:code|status) [1-9]|Exit code: [1-9]|(?:<error>|Error:)"
)
_ALTERED = "The user made the following updates to your content:"


def recognises(path: Path, head: bytes) -> bool:
    """By its name, or a list whose first message is a task with the state of the editor."""
    if path.name in _BESIDE:
        return (path.parent / _NAME).exists() or (path.name == _SHOWN and mentions(head, "ts", "type", "say"))
    if _is_beside(path):
        return True
    if path.name.endswith(_MESSAGES):
        return mentions(head, *_SESSION)
    first = next(iter(first_objects(head)), {}) if head.lstrip()[:1] == b"[" else {}
    if text_of(first.get("role")) != "user":
        return False
    told = "\n".join(text_of(table_of(part).get("text")) for part in list_of(first.get("content")))
    return path.name == _NAME or ("<task>" in told and "<environment_details>" in told)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one task; of what lies beside it, none."""
    if path.name == _SHOWN and not (path.parent / _NAME).exists():
        yield Quarantined(Place(str(path)), f"what Cline shows of a task: name {_NAME} of its folder instead")
    if path.name in _BESIDE or _is_beside(path):
        return
    found = json_document(path)
    about = found if isinstance(found, dict) else {}
    messages = about.get("messages", found)
    if not isinstance(messages, list):
        why = "not a list of messages"
        yield found if isinstance(found, Quarantined) else Quarantined(Place(str(path)), why)
        return
    yield from _Task(path, seen, messages, about).items()


def _is_beside(path: Path) -> bool:
    """Whether it is what the command line keeps of a session beside its messages."""
    return path.name == f"{path.parent.name}.json" and path.with_name(path.stem + _MESSAGES).exists()


def _about(path: Path, found: dict[str, Any]) -> dict[str, str]:
    """Folder and version of a session of the command line."""
    if not found:
        return {}
    beside = path.with_name(path.name.removesuffix(_MESSAGES) + ".json")
    told = json_document(beside) if beside.is_file() else None
    cwd = text_of(told.get("cwd")) if isinstance(told, dict) else ""
    return {"cwd": cwd, "version": text_of(table_of(found.get("origin")).get("version"))}


class _Task:
    def __init__(self, path: Path, seen: Seen, found: list[Any], about: dict[str, Any]) -> None:
        self._about, self._is_session = _about(path, about), bool(about)
        self._seen, self._found, self._place = seen, found, Place(str(path))
        began = next((at for one in found if (at := table_of(one).get("ts"))), None)
        told = path.parent.name if _ID.fullmatch(path.parent.name) else ""
        self._session = (
            text_of(about.get("sessionId")) or told or (str(began) if isinstance(began, int) else path.stem)
        )
        where = "/".join(path.parts).lower()
        self._agent = next((agent for mark, agent in _AGENTS.items() if mark in where), "cline")
        self._conversation = Conversation(seen, KIND)
        self._open: list[Call] = []  # what the last answer asked for

    def items(self) -> Iterator[Read]:
        """All of them that no file before had."""
        times: Counter[str] = Counter()
        for value in self._found:
            message = message_of(value)
            if message is None or message.role not in ("user", "assistant"):
                yield Quarantined(self._place, "a message without content or with an unknown role")
                continue
            at = milliseconds(value.get("ts"))
            about: dict[str, Any] = {"at": at, "place": self._place, "times": times}
            if message.role == "assistant":
                self._open = list(message.calls)
                answer = Answer(
                    message=message, model=first_text(table_of(value.get("modelInfo")), "modelId", "id")
                )
                yield from self._conversation.request(self._session, [], answer, **about)
                continue
            cwd = found[1] if (found := _CWD.search(message.text)) else ""
            about_it = {"agent": self._agent, "cwd": cwd} | self._about
            if self._is_session:
                message.results = [_with_outcome(result) for result in message.results]
            yield from opening(self._seen, self._session, self._place, at, **about_it)
            altered = list(self._ends(message, value.get("content")))
            yield from self._conversation.request(self._session, [message], None, **about)
            for call in altered:
                if self._seen.first(self._session, f"{KIND}:altered:{call}"):
                    yield Feedback(
                        session=self._session, at=at, place=self._place, target=call, name="user_modified",
                        value=True,
                    )  # fmt: skip

    def _ends(self, message: Message, content: object) -> Iterator[str]:
        """Adds to the message what its texts say that calls gave; those whose edit a person altered."""
        for part in list_of(content):
            found = _GAVE.match(text_of(table_of(part).get("text")))
            name = found[1][1:].partition(" ")[0].partition("]")[0] if found else ""
            call = next((one for one in self._open if one.name == name), None)
            if found is None or call is None:
                continue
            self._open.remove(call)
            message.results.append(Result(call.id, found[2], bool(_FAILED.match(found[2]))))
            if found[2].startswith(_ALTERED):
                yield call.id


def _with_outcome(result: Result) -> Result:
    """The result, wrong where the command line's own JSON says so: of one command, or one of several."""
    told = parsed(result.text.encode(errors="replace"))
    asked = [table_of(one) for one in (told if isinstance(told, list) else [told])]
    failed = any("query" in one and one.get("success") is False for one in asked)
    return structs.replace(result, wrong=result.wrong or failed)
