"""What agents of Codex write to each other: a task, an answer or a message that one thread gets from another.

It is in the log of who gets it, in three forms: first an assistant's message whose text is JSON, then a line
of its own (`inter_agent_communication`), and since 0.144 an item `agent_message`, behind a line that says
whether it makes the agent begin (`inter_agent_communication_metadata`). Requests of the Responses API have
the item, too. The names are those of `InterAgentCommunication` in openai/codex. Not for: agents asked in a
user's message, as they were before.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cursorbench.sessions.items import Automatic
from cursorbench.sessions.reading import list_of, parsed, table_of, text_of

# tags of what Codex puts under the role `user` itself, among it word of a sub-agent
FRAGMENTS = (
    *("skills_instructions", "plugins_instructions", "apps_instructions", "collaboration_mode"),
    *("personality_spec", "realtime_conversation", "model_switch", "goal_context", "codex_internal_context"),
    *("turn_aborted", "tool_context", "reasoning_context", "pinned_notes", "hook_prompt"),
    "subagent_notification",
)
_FIELDS = {"author", "recipient", "content", "trigger_turn"}
_KIND = re.compile(r"Message Type: ([A-Z_]+)\n")
_TASK = "NEW_TASK"
_SEALED = re.compile(r"gAAAAA[\w-]+={0,2}")  # for OpenAI's service; with other providers it is a text


class Letter(NamedTuple):
    """What an agent got from another one. A task is what a person's request is to the first agent."""

    text: str
    automatic: Automatic


def letter_of(payload: dict[str, Any], begins: bool = False) -> Letter:
    """Of an item or a line; `begins`: the line before the item says that it makes the agent begin."""
    content = payload.get("content")
    parts = [content] if isinstance(content, str) else [_text(part) for part in list_of(content)]
    sealed = text_of(payload.get("encrypted_content"))
    text = "".join([*parts, "" if _SEALED.fullmatch(sealed) else sealed])
    begins = begins or payload.get("trigger_turn") is True
    kind = _KIND.match(text)
    return Letter(text, "sub_agent" if (kind[1] == _TASK if kind else begins) else "meta")


def letter_in(text: str) -> Letter | None:
    """Of an assistant's message; None for what the agent said itself."""
    if not (text.startswith("{") and '"trigger_turn"' in text):
        return None
    table = table_of(parsed(text.encode(errors="replace")))
    return letter_of(table) if table.keys() >= _FIELDS else None


def _text(part: object) -> str:
    told = table_of(part)
    text = text_of(told.get("text")) or text_of(told.get("encrypted_content"))
    return "" if _SEALED.fullmatch(text) else text
