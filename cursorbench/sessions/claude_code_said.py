"""Which lines of a Claude Code log a person wrote, and prompts that waited while the agent worked.

For `claude_code`. Claude Code writes much under the role `user` that nobody typed; what only the text tells
is in `automatic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cursorbench.sessions.items import Automatic, Place
from cursorbench.sessions.reading import list_of, table_of, text_of

NO_MODEL = "<synthetic>"  # of what the client itself says in the agent's name
_WAITING = 1000  # prompts kept until they are said; a loop of a broken client is no reason to keep more


def automatic_line(line: dict[str, Any]) -> Automatic:
    """Why nobody typed the texts of this line, "" when its fields do not tell."""
    if line.get("isSidechain") is True:
        return "sub_agent"
    if line.get("isCompactSummary") is True:
        return "continuation"
    if line.get("isMeta") is True or line.get("isVisibleInTranscriptOnly") is True:
        return "meta"
    if text_of(line.get("planContent")):
        return "plan"
    origin = table_of(line.get("origin")).get("kind")
    return "meta" if isinstance(origin, str) and origin != "human" else ""


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

    def operation(self, name: str, prompt: Waiting) -> None:
        """`enqueue`, `dequeue`, `remove` or `popAll`; the last two but one may name no text (the oldest)."""
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
            if name == "remove" and len(self._taken) < _WAITING:  # given to the agent in the middle of a turn
                self._taken.append(one)

    def said(self, text: str) -> None:
        """The log tells the prompt in its own place."""
        for prompts in (self._waiting, self._taken):
            for number, one in enumerate(prompts):
                if one.text == text:
                    del prompts[number]
                    return

    def untold(self) -> Iterator[Waiting]:
        """Prompts the agent got that the log tells nowhere else."""
        yield from self._taken
