"""What an adapter tells of a session log: who said and did what, in the order of the log.

The common language of the readers in this folder: an adapter turns one format into a stream of these, ids
and texts as the log has them. Times are milliseconds since the epoch, None where the log tells none; a text
is never shortened. Not for: exact tokens (logs have none), judging, redaction.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Automatic = Literal[
    "", "tool_result", "command", "plan", "continuation", "meta", "sub_agent", "pasted_output"
]
Status = Literal["proposed", "applied", "rejected", "undone"]
Outcome = Literal["ok", "error", "rejected", "interrupted"]


class Place(msgspec.Struct, frozen=True):
    """Where in a file; `line` counts from 1, 0 stands for the whole document."""

    file: str
    line: int = 0


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Of every item: its session, its id in the log ("" where the log has none), when, where it was read."""

    session: str
    id: str = ""
    at: int | None = None
    place: Place


class SessionStart(Item, frozen=True, kw_only=True):
    """A session begins; said once, before its first item. `parent` is the session it is a sub-agent of."""

    agent: str = ""
    version: str = ""
    cwd: str = ""
    branch: str = ""
    commit: str = ""  # HEAD when it began
    repository: str = ""  # what the log calls it: `owner/name` or an address
    parent: str = ""


class UserTurn(Item, frozen=True, kw_only=True):
    """A message to the agent. `automatic` is "" when a person wrote it, else why it was none."""

    text: str
    automatic: Automatic = ""


class AgentTurn(Item, frozen=True, kw_only=True):
    """A message of the agent, or a part of one. Durations in ms. `span`: another id for feedback to name."""

    text: str
    model: str = ""
    span: str = ""
    thinking: str = ""
    first_token_ms: float | None = None
    duration_ms: float | None = None


class ToolUse(Item, frozen=True, kw_only=True):
    """The agent calls a tool. `arguments` is JSON text as the log has it; `invalid`: why it is none.

    `checked`: what a check against the tool definitions in the same log found; "" where it has none.
    `model`: who calls, where the log tells it of calls too: many messages are nothing but calls.
    """

    name: str
    model: str = ""
    arguments: str = ""
    invalid: str = ""
    checked: Literal["", "ok", "unknown_tool", "schema"] = ""


class ToolEnd(Item, frozen=True, kw_only=True):
    """A tool call ended; `id` is the call's. `reason` is what the user said when rejecting it."""

    outcome: Outcome
    text: str = ""
    reason: str = ""


class Edit(Item, frozen=True, kw_only=True):
    """The agent changes a file: by texts before and after, by a unified diff, or (all None) by name only.

    `id` is the tool call's where one made it. A later item with the same id replaces the status.
    `answer`: the id of the answer that made it, where that was no call and the log may tell of it much later.
    """

    path: str
    status: Status
    before: str | None = None
    after: str | None = None
    diff: str | None = None
    answer: str = ""


class Interrupt(Item, frozen=True, kw_only=True):
    """The user stopped the agent."""

    during: Literal["answer", "tool"] = "answer"


class Commit(Item, frozen=True, kw_only=True):
    """The session's work, or part of it, became a commit. `paths` may be empty when the log names none."""

    sha: str
    message: str = ""
    paths: tuple[str, ...] = ()


class Attribution(Item, frozen=True, kw_only=True):
    """Lines of a file that somebody wrote: [start, end] counted from 1, both included.

    `session` is the conversation they came from, "" when it is not told.
    """

    commit: str
    path: str
    start: int
    end: int
    author: Literal["ai", "human", "mixed", "unknown"]
    agent: str = ""
    model: str = ""


class Feedback(Item, frozen=True, kw_only=True):
    """A verdict on an answer or a whole session: `target` is the id it is about, "" for the session."""

    target: str
    name: str  # "thumb", or the metric's name
    value: float | bool | str
    comment: str = ""


class Completion(Item, frozen=True, kw_only=True):
    """A completion in the editor: shown, and accepted or not (None: not told)."""

    path: str = ""
    prompt: str = ""
    text: str = ""
    shown: bool = True
    accepted: bool | None = None
    model: str = ""


class Quarantined(msgspec.Struct, frozen=True):
    """What could not be read, with the reason: one of a fixed set of texts, nothing of the content."""

    place: Place
    reason: str


Read = (
    SessionStart
    | UserTurn
    | AgentTurn
    | ToolUse
    | ToolEnd
    | Edit
    | Interrupt
    | Commit
    | Attribution
    | Feedback
    | Completion
    | Quarantined
)
