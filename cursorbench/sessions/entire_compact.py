"""Entire's compact transcripts, `transcript.jsonl`: one format for the sessions of every agent.

Since the middle of 2026 it lies beside `full.jsonl`, and is read where that is missing or of an agent without
a reader of its own (Gemini CLI, Cursor, Droid). A line is a message, a tool's result stands in the call's
block. Format: entireio/cli, docs/architecture/external-agent-protocol.md. Not for: agents' own transcripts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cursorbench.sessions import spoken
from cursorbench.sessions.calls import arguments_of, changes_of, edits
from cursorbench.sessions.chat import plain_text
from cursorbench.sessions.items import AgentTurn, Automatic, Outcome, Quarantined, Read, ToolEnd, ToolUse
from cursorbench.sessions.reading import milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, opening, records
from cursorbench.sessions.seen import Seen

NAME = "transcript.jsonl"
_FIELDS = {"v", "agent", "type", "content"}


def recognises(path: Path, head: bytes) -> bool:
    """By its name and the fields of its first message."""
    return path.name == NAME and any(one.keys() >= _FIELDS for one in first_objects(head))


def read(path: Path, session: str, about: Mapping[str, Any], seen: Seen) -> Iterator[Read]:
    """The messages of a session; `about` is its metadata, which alone tell the model.

    Every checkpoint has the session again from its beginning: a block is known by its message's time, its
    content, and how often that came before in the file. What the agent asks a sub-agent stands once more as a
    message of the user's: no field tells, so it is known by the call before it.
    """
    often: Counter[str] = Counter()
    asked: set[str] = set()  # of sub-agents
    model, expanded = text_of(about.get("model")), spoken.Expanded()
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, line = found
        kind, blocks = text_of(line.get("type")), line.get("content")
        if kind not in ("user", "assistant"):
            yield Quarantined(place, "unknown_type")
            continue
        if not isinstance(blocks, list):
            yield Quarantined(place, "a message without content")
            continue
        at = milliseconds(line.get("ts"))
        yield from opening(seen, session, place, at, agent=text_of(line.get("agent")))
        told: dict[str, Any] = {"session": session, "at": at, "place": place}
        if kind == "user":
            texts = [text for one in blocks if (text := text_of(table_of(one).get("text")))]
            whole = "\n".join(texts)
            why: Automatic = "command" if expanded.automatic(whole, at) == "command" else ""
            why = "sub_agent" if whole.strip() in asked else why
            if _new(seen, session, f"user {at} {whole}", often):
                one = text_of(line.get("id"))
                yield from spoken.turns_of(texts or [""], why, id=one, **told)
        else:
            for block in map(table_of, blocks):
                if prompt := text_of(table_of(block.get("input")).get("prompt")).strip():
                    asked.add(prompt)
                yield from _block(block, text_of(line.get("id")), model, told, seen, often)


def _block(
    block: dict[str, Any], one: str, model: str, told: dict[str, Any], seen: Seen, often: Counter[str]
) -> Iterator[Read]:
    """A part of an answer: its text, a thought, or a call with its end."""
    session, kind = told["session"], text_of(block.get("type"))
    if kind == "tool_use":
        yield from _call(block, model, told, seen, often)
        return
    if kind not in ("text", "thinking") or not (text := text_of(block.get(kind))):
        return
    if _new(seen, session, f"{kind} {one or told['at']} {text}", often):
        said, thought = (text, "") if kind == "text" else ("", text)
        yield AgentTurn(id=one, model=model, text=said, thinking=thought, **told)


def _call(
    block: dict[str, Any], model: str, told: dict[str, Any], seen: Seen, often: Counter[str]
) -> Iterator[Read]:
    session, one, name = told["session"], text_of(block.get("id")), text_of(block.get("name"))
    if not name:
        yield Quarantined(told["place"], "a call without a name")
        return
    arguments = arguments_of(block.get("input"))
    key = one or f"{told['at']} {name} {arguments.text}"
    changes = changes_of(name, arguments.table)
    about = {"session": session, "call": one, "at": told["at"], "place": told["place"]}
    nth = often[f"call {key}"] = often[f"call {key}"] + (0 if one else 1)
    if seen.first(session, f"entire call {nth} {key}"):
        yield ToolUse(
            id=one, name=name, model=model, arguments=arguments.text, invalid=arguments.invalid, **told
        )
        yield from edits(changes, "proposed", **about)
    result = block.get("result")
    if isinstance(result, dict) and seen.first(session, f"entire end {nth} {key}"):
        outcome: Outcome = "error" if result.get("status") == "error" else "ok"
        yield ToolEnd(id=one, outcome=outcome, text=plain_text(result.get("output")), **told)
        if outcome == "ok":
            yield from edits(changes, "applied", **about)


def _new(seen: Seen, session: str, what: str, often: Counter[str]) -> bool:
    often[what] += 1
    return seen.first(session, f"entire {often[what]} {what}")
