"""Which lines of a Claude Code log a person wrote, and prompts that waited while the agent worked.

For `claude_code`. Claude Code writes much under the role `user` that nobody typed; what only the text tells
is in `automatic.py`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cursorbench.sessions import spoken
from cursorbench.sessions.items import Automatic, Interrupt, Place, Quarantined, UserTurn
from cursorbench.sessions.reading import list_of, table_of, text_of

NO_MODEL = "<synthetic>"  # of what the client itself says in the agent's name
NOTHING = "No response requested."  # one of these, where a session goes on
STOPPED = "[Request interrupted by user]"
_GIVEN = ("", "absorbed_mid_turn", "delivered_to_agent")  # why a prompt was removed; none before 2.1.246
# agents that the client runs for itself below subagents/, to sum up the session and to guess what the user
# will type, and what it asks them; others have nothing but hexadecimal digits behind the a
_HELPERS = ("acompact-", "aprompt_suggestion-")
_ASKED = (
    "Your task is to create a detailed summary of ",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools",
    "[SUGGESTION MODE: ",
)
_ASIDE = "aside_question-"  # what a person asked with /btw while the agent worked, and its answer
SIDE_QUESTION = "<system-reminder>This is a side question from the user."  # before a person's, asked by /btw
_UUID = re.compile(r"(?=.{36}\Z)[^-]*(?:-[^-]*){4}")
_WAITING = 1000  # prompts kept until they are said; a loop of a broken client is no reason to keep more


def automatic_line(line: dict[str, Any]) -> Automatic:
    """Why nobody typed the texts of this line, "" when its fields do not tell."""
    sidechain = line.get("isSidechain") is True
    if sidechain and _is_side_question(line):
        return ""
    if line.get("isCompactSummary") is True:
        return "continuation"
    if line.get("isMeta") is True or line.get("isVisibleInTranscriptOnly") is True:
        return "meta"
    if text_of(line.get("planContent")):
        return "plan"
    origin = table_of(line.get("origin")).get("kind")
    others = isinstance(origin, str) and origin != "human"
    if others or line.get("promptSource") == "system":
        return "meta"
    return "sub_agent" if sidechain else ""


def _is_side_question(line: dict[str, Any]) -> bool:
    """Whether a person asked this of an agent that only answers it; its log begins as the session's does."""
    asked = text_of(line.get("agentId")).startswith(_ASIDE)
    return asked and plain(table_of(line.get("message")).get("content")).startswith(SIDE_QUESTION)


def turns(line: dict[str, Any], text: str, **own: Any) -> Iterator[UserTurn | Interrupt]:
    """The items of a text of a user's line. The mark that the client itself stopped is nobody's."""
    if is_shutdown(line):
        yield UserTurn(**own, text=text, automatic="meta")
    else:
        yield from spoken.turns(text, automatic_line(line), **own)


def is_shutdown(line: dict[str, Any]) -> bool:
    """Whether the client wrote this as its process ended: in the words of a stop or refusal by the user."""
    return line.get("interruptedByShutdown") is True


def denied(line: dict[str, Any]) -> dict[str, Any]:
    """What a line with a call's result says of who denied the call; see `claude_code_tools.outcome`."""
    kind, feedback = text_of(line.get("toolDenialKind")), text_of(line.get("userFeedback")).strip()
    decision = table_of(line.get("permissionDecision"))
    by = text_of(decision.get("source")) if decision.get("decision") == "reject" else ""
    words = line.get("holdsPersonsWords") is True
    return {"shutdown": is_shutdown(line), "denial": kind, "feedback": feedback, "by": by, "words": words}


def without_helpers(
    found: Iterable[tuple[Place, dict[str, Any]] | Quarantined],
) -> Iterator[tuple[Place, dict[str, Any]] | Quarantined]:
    """The lines without what the client asked agents of its own, for nobody, and what they answered.

    The log of such an agent begins with a copy of the session's lines, or with some that no other log has.
    """
    theirs = set[str]()  # these lines: of two calls at once the first one's result goes on from an older one
    for one in found:
        line = {} if isinstance(one, Quarantined) else one[1]
        helper = line.get("isSidechain") is True and text_of(line.get("agentId")).startswith(_HELPERS)
        text = plain(table_of(line.get("message")).get("content")) if helper else ""
        if helper and (text.startswith(_ASKED) or text_of(line.get("parentUuid")) in theirs):
            theirs |= {text_of(line.get("uuid"))} - {""}
        else:
            yield one


def marks(line: dict[str, Any], session: str, good: bool) -> list[tuple[str, str]]:
    """What a line is known by, and in which session, "" for all: a fork copies lines.

    Where the SDK makes the fork, copies have ids of their own and name the line's. What cannot be read must
    not stand for a good line with its id; Entire blacks ids out, all the same.
    """
    uuid, source = text_of(line.get("uuid")), table_of(line.get("forkedFrom"))
    found = [(session, uuid if good else uuid and f"bad {uuid}")]
    if good and source.get("messageUuid") not in (None, uuid):
        found.append((text_of(source.get("sessionId")), text_of(source["messageUuid"])))
    return [("" if _UUID.fullmatch(one) else whose, "" if "REDACTED" in one else one) for whose, one in found]


def is_clients(line: dict[str, Any]) -> bool:
    """Whether the client wrote this line of the agent: an error of the service, or that nothing was asked."""
    return line.get("isApiErrorMessage") is True or table_of(line.get("message")).get("model") == NO_MODEL


def plain(content: object) -> str:
    """The text of a message's content: a string, or the text blocks of a list, a line each."""
    if isinstance(content, str):
        return content
    texts = (
        block if isinstance(block, str) else text_of(table_of(block).get("text"))
        for block in list_of(content)
    )
    return "\n".join(text for text in texts if text)


class Waiting(NamedTuple):
    """A prompt typed while the agent worked."""

    session: str
    text: str
    at: int | None
    place: Place


class Queue:
    """Prompts that waited. Newer logs repeat them as attachments when the agent gets them, older do not."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._taken: list[Waiting] = []
        self._told: deque[Waiting] = deque(maxlen=_WAITING)

    def operation(self, name: str, prompt: Waiting, reason: str) -> None:
        """`enqueue`, `dequeue`, `remove` or `popAll`; the last two but one may name no text (the oldest).

        What is removed for a `reason` was given to the agent, unless it says something else.
        """
        if name == "enqueue":
            if prompt.text and len(self._waiting) < _WAITING:
                self._waiting.append(prompt)
        elif name == "popAll":  # back into the editor
            self._waiting.clear()
        elif name in ("dequeue", "remove"):
            found = next((n for n, one in enumerate(self._waiting) if prompt.text in ("", one.text)), None)
            if found is None:
                return
            one = self._waiting.pop(found)
            if name == "remove" and reason in _GIVEN and len(self._taken) < _WAITING:
                self._taken.append(one._replace(at=one.at if prompt.at is None else prompt.at))

    def said(self, text: str) -> bool:
        """The log tells a text in its own place; whether it is a prompt of these."""
        for prompts in (self._waiting, self._taken):
            for number, one in enumerate(prompts):
                if one.text == text:
                    del prompts[number]
                    return True
        return False

    def again(self, text: str) -> bool:
        """Whether this is a prompt that `untold` gave already."""
        found = next((one for one in self._told if one.text == text), None)
        if found is not None:
            self._told.remove(found)
        return found is not None

    def untold(self, session: str = "") -> Iterator[Waiting]:
        """Prompts that the agent got and the log tells nowhere else, each once; "": of all sessions."""
        for one in [one for one in self._taken if session in ("", one.session)]:
            self._taken.remove(one)
            self._told.append(one)
            yield one
