"""What tells a conversation from others: what was said before the first answer, and that answer. Pure.

Clients send a conversation back with each request, and write some of it anew: the time, a signature, the
spelling of a call's arguments. That is passed over. One that is started again to go on with a conversation
writes more of it anew: what the repository looks like now. Who asks roughly is told of the same one all the
same. Not for: which of several alike is meant (`conversations.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cursorbench.sessions import spoken
from stages.gateway.arguments import compared
from stages.gateway.attribution import text_of
from stages.gateway.clients import unsigned

_MARKS = 200_000  # in the arguments of a message's calls; behind so many they are compared as they stand
_ACKNOWLEDGED = {  # in the model's name, before a person asks: Qwen Code's, and Aider's
    "Got it. Thanks for the context!",
    "Ok, I won't try and edit those files without asking first.",
    "Ok, I will use these files as references.",
    "Ok, any changes I propose will be to those files.",
}
_EXAMPLES = 20  # messages at the beginning, among which Aider's examples may be
_BEHIND_EXAMPLES = (
    "I switched to a new code base. Please don't consider the above files"  # to which it says "Ok."
)
_FIRST_LINE = 200  # characters
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))  # None: left out
_PASSING = ("<info-msg>", "</info-msg>")  # Goose's: time and tokens used, of each request in another place


class Opening(NamedTuple):
    """What was said before a model's first answer, and that answer, None where there is none yet."""

    messages: Sequence[Mapping[str, Any]]
    answer: Mapping[str, Any] | None


def opening(messages: Sequence[Mapping[str, Any]]) -> Opening:
    """How a conversation begins. What a client says in the model's place is no answer of one."""
    begin = 0
    for n, message in enumerate(messages[:_EXAMPLES]):
        if message.get("role") == "user" and text_of(message.get("content")).startswith(_BEHIND_EXAMPLES):
            begin = n + 2
    for n, message in enumerate(messages[begin:], begin):
        if _is_answer(message):
            return Opening(messages[:n], message)
    return Opening(messages, None)


def conversation(
    key_id: str,
    user: str,
    begun: Opening,
    answer: Mapping[str, Any],
    *,
    no_train: bool,
    roughly: bool = False,
) -> bytes:
    """What tells a conversation from others: its opening and the first answer in it. Content: hash it.

    Args:
        answer: what this request gets; it counts where the conversation had none.
        no_train: what is not trained on is told from what is: a request without consent takes no other along.
        roughly: of the opening only what people said, and for whom the system prompt's first line is.
    """
    first = answer if begun.answer is None else begun.answer
    told = [[one.get("role"), _lasting(one)] for one in begun.messages]
    if roughly:
        told = [part for part in map(_roughly, begun.messages) if part[1]]
    parts = [key_id, user, told, gist(first), *(["no_train"] if no_train else [])]
    return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)


def _is_answer(message: Mapping[str, Any]) -> bool:
    if message.get("role") != "assistant":
        return False
    return bool(message.get("tool_calls")) or text_of(message.get("content")).strip() not in _ACKNOWLEDGED


def gist(message: Mapping[str, Any]) -> list[Any]:
    """What of an assistant message survives a client's round trip: text behind its thoughts, and calls."""
    calls: list[Any] = []
    left = _MARKS
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            if isinstance(arguments, str):
                left -= sum(map(arguments.count, '{[",'))
                arguments = compared(arguments) if left >= 0 else arguments
            calls.append([function.get("name"), arguments])
    return [text_of(message.get("content")).rpartition("</think>")[2].strip(), calls]


def _roughly(message: Mapping[str, Any]) -> list[Any]:
    """A message's role and what of it stays when its client is started again, "" for nothing."""
    role = message.get("role")
    if role == "user":
        said = spoken.parts(text_of(message.get("content")))
        return [role, "\n".join(part.text.strip() for part in said if not part.automatic)]
    if role not in ("system", "developer"):
        return [role, ""]
    told = _lasting(message)
    return [role, told.lstrip().partition("\n")[0][:_FIRST_LINE] if isinstance(told, str) else ""]


def _lasting(message: Mapping[str, Any]) -> Any:
    """A message's content without what its client writes anew for every request: the time, in system prompts.

    Claude Code signs each for its maker in the system prompt: proxies to OpenAI's HTTP leave that line in.
    """
    content = _plain(message.get("content"))
    if not isinstance(content, str):
        return content
    if message.get("role") == "user":
        return _without_passing(content)
    return unsigned(content).translate(_NO_DIGITS)


def _without_passing(text: str) -> str:
    """Nor the blanks around it: what is told stands on lines of its own, behind a text's last line end."""
    opened, closed = _PASSING
    if opened not in text:
        return text.strip()
    first, *rest = text.split(opened)
    parts = (piece.partition(closed) for piece in rest)
    return "".join([first, *(behind if found else opened + told for told, found, behind in parts)]).strip()


def _plain(content: Any) -> Any:
    """A message's content; as a string where it is texts alone, which clients send either way.

    Some mark the parts of their latest messages as to be cached, and send them as strings later.
    """
    if not isinstance(content, list):
        return content
    texts = all(isinstance(part, dict) and part.get("type") == "text" for part in content)
    return text_of(content) if texts else content
