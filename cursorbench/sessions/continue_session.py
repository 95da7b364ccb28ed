"""Sessions of Continue, of its editor extensions and of its command line: `~/.continue/sessions/ID.json`.

A document with a history, each member of which is a message with what became of its calls. Messages have no
times. Not for: development data (`continue_dev.py`).

Source: continuedev/continue (`core/index.d.ts`, `cancelToolCall.ts`), and sessions that `cn` 1.5.47 wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from cursorbench.sessions.calls import Result, changes_of
from cursorbench.sessions.chat import Answer, Conversation, Message, message_of, plain_text
from cursorbench.sessions.continue_answers import answer_id, shown_id, tells_call, tells_edits
from cursorbench.sessions.items import AgentTurn, Place, Quarantined, Read, ToolUse
from cursorbench.sessions.reading import json_document, list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_text, mentions, opening
from cursorbench.sessions.refusals import refusal
from cursorbench.sessions.seen import Seen

KIND = "continue-session"

_INDEX = "sessions.json"  # of all sessions in the folder: id, title, when it began
_BY_A_RULE = "Command blocked by security policy"
_ENDED = frozenset({"done", "errored", "canceled"})


def recognises(path: Path, head: bytes) -> bool:
    """A session with its history, or the list of those beside it."""
    if path.name == _INDEX and mentions(head, "sessionId", "dateCreated"):
        return True
    return mentions(head, "sessionId", "workspaceDirectory", "history")


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The items of one session; of the list, none."""
    if path.name == _INDEX:
        return
    found = json_document(path)
    if isinstance(found, Quarantined):
        yield found
    elif isinstance(found, dict) and isinstance(found.get("history"), list):
        yield from _items(path, seen, found)
    else:
        yield Quarantined(Place(str(path)), "not a session with a history")


def _began(path: Path, session: str) -> int | None:
    """When the session began, ms, by the list beside it."""
    index = path.with_name(_INDEX)
    listed = json_document(index) if index.is_file() else None
    for one in map(table_of, list_of(listed)):
        if one.get("sessionId") == session:
            return milliseconds(one.get("dateCreated"))
    return None


def _items(path: Path, seen: Seen, told: dict[str, Any]) -> Iterator[Read]:
    place, session = Place(str(path)), text_of(told.get("sessionId")) or path.stem
    conversation = Conversation(seen, KIND)
    about: dict[str, Any] = {"at": None, "place": place, "times": Counter[str]()}
    for one in map(table_of, told["history"]):
        given = table_of(one.get("message"))
        message = message_of({**given, "tool_calls": given.get("toolCalls")}) if given else None
        if message is None:
            yield Quarantined(place, "a message without content or with an unknown role")
            continue
        cwd = text_of(told.get("workspaceDirectory"))
        yield from opening(seen, session, place, _began(path, session), agent="continue", cwd=cwd)
        message.results = []  # those of the role tool repeat what the calls' states have
        if message.role == "user":
            yield from conversation.request(session, [message], None, **about)
        elif message.role == "assistant":
            states = [table_of(state) for state in list_of(one.get("toolCallStates"))]
            message.thinking = text_of(table_of(one.get("reasoning")).get("text")) or message.thinking
            if message.text or message.thinking or message.calls:
                answer = Answer(message=message, model=_model(one, given))
                named = answer_id(session, message.text), shown_id(message.text)
                for item in conversation.request(session, [], answer, **about):
                    yield _named(item, seen, *named)
                if any(changes_of(call.name, call.arguments.table) for call in message.calls):
                    tells_edits(seen, message.text)
            ended = Message("tool", results=[result for state in states for result in _result(state)])
            yield from conversation.request(session, [ended] if ended.results else [], None, **about)
        if summary := text_of(one.get("conversationSummary")):
            summed_up = Message("user", text=summary, automatic="continuation")
            yield from conversation.request(session, [summed_up], None, **about)


def _model(one: dict[str, Any], message: dict[str, Any]) -> str:
    """Which model answered: the terminal's client tells it with the usage, the editors' with the prompt."""
    prompts = [table_of(prompt) for prompt in list_of(one.get("promptLogs"))]
    last = prompts[-1] if prompts else {}
    used, options = table_of(message.get("usage")), table_of(last.get("completionOptions"))
    return (
        first_text(used, "model")
        or first_text(options, "model")
        or first_text(last, "modelName", "modelTitle")
    )


def _named(item: Read, seen: Seen, one: str, shown: str) -> Read:
    """An item of an answer, with the names that development data has for it."""
    if isinstance(item, ToolUse):
        tells_call(seen, item.id)
    return structs.replace(item, id=one, span=shown) if isinstance(item, AgentTurn) else item


def _result(state: dict[str, Any]) -> Iterator[Result]:
    """How a call ended; a person's no has the state `canceled`, as has a rule's."""
    status, given = text_of(state.get("status")), state.get("output")
    if status not in _ENDED:
        return
    texts = [{"text": text_of(table_of(part).get("content"))} for part in list_of(given)]
    text = plain_text(texts) if texts else text_of(given)
    denied = status == "canceled" and not text.startswith(_BY_A_RULE)
    reason = refusal(text) or ""
    one = text_of(state.get("toolCallId")) or text_of(table_of(state.get("toolCall")).get("id"))
    yield Result(one, text, status != "done", refused=denied, reason=reason)
