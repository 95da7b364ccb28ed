"""Commands in OpenCode: how they ended, and those that a person ran in its shell mode (`!ls`).

The latter it writes as a call in an answer; the message before says so, in its own words (`shell` of
packages/opencode's `session/prompt.ts`).
Not for: OpenCode 2, whose export has a type for them (`opencode_v2.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cursorbench.sessions.items import Outcome
from cursorbench.sessions.reading import list_of, table_of

_NOTE = "<shell_metadata>\n"  # what OpenCode says behind the output of a command that has no exit code
_STOPPED, _TIMED_OUT = "User aborted the command", "shell tool terminated command after exceeding timeout"
_RAN = "The following tool was executed by the user"


def messages_of(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages; an answer that is a person's command is told as their other commands are."""
    own = False
    for one in messages:
        message = table_of(one)
        info, parts = (
            table_of(message.get("info")),
            [table_of(part) for part in list_of(message.get("parts"))],
        )
        tools = [part for part in parts if part.get("type") == "tool"]
        if own and info.get("role") == "assistant" and len(tools) == 1:
            yield {"info": {**info, "role": "user"}, "parts": [_command(tools[0])]}
        else:
            yield one
        own = info.get("role") == "user" and bool(parts) and all(map(_says, parts))


def shell_outcome(code: object, output: str) -> Outcome:
    """How a call ended by its exit code, or by the words of one that was ended before it had one."""
    if isinstance(code, int):
        return "error" if code else "ok"
    note = output.rpartition(_NOTE)[2] if output.rstrip().endswith("</shell_metadata>") else ""
    return "interrupted" if _STOPPED in note else "error" if _TIMED_OUT in note else "ok"


def _says(part: dict[str, Any]) -> bool:
    return part.get("synthetic") is True and part.get("text") == _RAN


def _command(part: dict[str, Any]) -> dict[str, Any]:
    given = table_of(table_of(part.get("state")).get("input"))
    return {"type": "subtask", "prompt": given.get("command"), "id": part.get("id")}
