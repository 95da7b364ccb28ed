"""Commands that a person ran in OpenCode's shell mode (`!ls`): it writes them as a call in an answer.

The message before it says so, in its own words (`shell` of packages/opencode's `session/prompt.ts`).
Not for: OpenCode 2, whose export has a type for them (`opencode_v2.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cursorbench.sessions.reading import list_of, table_of

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


def _says(part: dict[str, Any]) -> bool:
    return part.get("synthetic") is True and part.get("text") == _RAN


def _command(part: dict[str, Any]) -> dict[str, Any]:
    given = table_of(table_of(part.get("state")).get("input"))
    return {"type": "subtask", "prompt": given.get("command"), "id": part.get("id")}
