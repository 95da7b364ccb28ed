"""What Copilot in VS Code tells in its spans beside the conventions, or against them. For `otel`.

`gen_ai.conversation.id` and `gen_ai.response.id` are the same in all calls of the model for one message of a
person's, and others for the next, whose calls have the whole conversation in them again; the session is an
attribute of its own. What the client asks for itself (a title, the next edit, the repair of a patch) is told
in spans like any other, and so is what sub-agents do. A thumb, or the answer to its survey, is an event that
names the client's own conversation. Source: microsoft/vscode-copilot-chat, microsoft/vscode
(`extensions/copilot`): `platform/otel`, `chatMLFetcher.ts`. Not for: its other events and
its metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cursorbench.sessions.calls import Arguments, arguments_of
from cursorbench.sessions.chat import Message
from cursorbench.sessions.items import Feedback, Place
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import text_of
from cursorbench.sessions.records import first_text

AGENT = "copilot-vscode"  # as its transcripts are told

_PREFIX = "copilot_chat."
_SESSION = ("copilot_chat.chat_session_id", "copilot_chat.session_id")
_RATED = {"copilot_chat.user.feedback": "thumb", "copilot_chat.inline_agent_survey": "copilot_chat.survey"}
_THUMBS = {"positive": True, "negative": False}
_PARENT, _LABEL = "copilot_chat.parent_chat_session_id", "copilot_chat.debug_log_label"
_OWN = re.compile(  # what such a request is called, in a session or in none
    r"(?:retry-)*(?:title|promptCategorization|summarize.*|heal\w+|notebookPlanning|.*[pP]rogressMessages?)"
)
_CUT = re.compile(r"\.\.\.\[truncated, original \d+ chars\]\Z")


def wrote(told: dict[str, Any]) -> bool:
    """Whether a span with these attributes is of this client."""
    return any(key.startswith(_PREFIX) for key in told)


def session(told: dict[str, Any]) -> str:
    """The session; "" where none is told, as in spans of others."""
    return first_text(told, *_SESSION)


def conversation(told: dict[str, Any]) -> str:
    """What the client itself calls the session; another id than the session's, and of its spans alone."""
    return text_of(told.get(_SESSION[1]))


def rating(record: Record, session: str, place: Place) -> Iterator[Feedback]:
    """A person's word on the last answer of a session; nothing of other events."""
    name, value = _RATED.get(record.name, ""), text_of(record.attributes.get("rating"))
    given = _THUMBS.get(value) if name == "thumb" else value
    if session and name and value and given is not None:
        yield Feedback(session=session, at=record.at, place=place, target="", name=name, value=given)


def response(told: dict[str, Any], span: str) -> str:
    """The id of an answer: here the span's, and none where an agent's span has its last one again."""
    if not wrote(told):
        return text_of(told.get("gen_ai.response.id"))
    return span if told.get("gen_ai.operation.name") == "chat" else ""


def parent(told: dict[str, Any]) -> str:
    """The session that this one is a sub-agent of."""
    return text_of(told.get(_PARENT))


def is_own(told: dict[str, Any]) -> bool:
    """Whether the client asked for itself: such requests have a name of theirs, a label, or no session.

    A question put in the editor has none either.
    """
    if not wrote(told):
        return False
    name, label = text_of(told.get("gen_ai.agent.name")), text_of(told.get(_LABEL))
    if label:
        return "subagent" not in label.lower()
    return bool(_OWN.fullmatch(name)) or not (session(told) or name.startswith("InlineChat"))


def asked(told: dict[str, Any], messages: list[Message]) -> list[Message]:
    """The messages of a request: what a sub-agent was asked is nobody's.

    Results without an id, as older versions have them, are told by their tools' spans.
    """
    if not wrote(told):
        return messages
    found = [one for one in messages if one.role != "tool" or any(result.id for result in one.results)]
    if not parent(told):
        return found
    return [msgspec.structs.replace(one, automatic="sub_agent") for one in found]


def arguments(given: object) -> Arguments:
    """A call's arguments. What the client cut at its limit is no fault of the agent."""
    found = arguments_of(given)
    return Arguments(text=found.text) if found.invalid and _CUT.search(found.text) else found
