"""Agent Trace 0.1.0 records, as the specification has them and in the flat variant found in the wild.

Specification: cursor/agent-trace (README.md, reference/). A record attributes ranges of lines to
conversations; sessions and shell commands travel as records of the pseudo files `.sessions` and
`.shell-history`. Not for: finding the lines again by their content hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from cursorbench.sessions.items import Attribution, Place, Quarantined, Read, ToolUse
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import first_objects, first_text, json_text, mentions, opening, records
from cursorbench.sessions.seen import Seen

KIND = "agent-trace"

Author = Literal["ai", "human", "mixed", "unknown"]
_AUTHORS: dict[str, Author] = {"ai": "ai", "human": "human", "mixed": "mixed"}
_EVENTS = {".sessions", ".shell-history"}


def recognises(path: Path, head: bytes) -> bool:
    """A record of either variant among the first lines."""
    found = first_objects(head)
    if not found:
        return mentions(head, "version", "files", "conversations", "ranges")
    return any(_is_flat(one) or _is_record(one) for one in found)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The attributions of each record, its session before them."""
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, record = found
        if _is_flat(record):
            yield from _flat(record, place, seen)
        elif isinstance(record.get("files"), list):
            yield from _record(record, place, seen)
        else:
            yield Quarantined(place, "not a trace record")


def _is_record(record: dict[str, Any]) -> bool:
    files = record.get("files")
    has_files = isinstance(files, list) and all(isinstance(one, dict) and "path" in one for one in files)
    return has_files and "version" in record and "timestamp" in record


def _is_flat(record: dict[str, Any]) -> bool:
    schema = text_of(record.get("schema")).startswith("agent-trace")
    return "file_path" in record and "start_line" in record and (schema or "content_hash" in record)


def _flat(record: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    path, lines = text_of(record.get("file_path")), _range(record)
    if lines is None or not path:
        yield Quarantined(place, "not a range of lines" if path else "no file")
        return
    session, at = text_of(record.get("session_id")), milliseconds(record.get("timestamp"))
    one = text_of(record.get("tool_use_id"))
    if not seen.first(session, f"{one}:{path}:{lines[0]}-{lines[1]}:{at}"):
        return
    yield from opening(seen, session, place, at)
    contributor = table_of(record.get("contributor")) or {"type": "ai"}  # written for an agent's tool call
    yield Attribution(
        session=session,
        id=one,
        at=at,
        place=place,
        commit=text_of(table_of(record.get("vcs")).get("revision")),
        path=path,
        start=lines[0],
        end=lines[1],
        author=_author(contributor),
        model=first_text(record, "model_id", "model") or text_of(contributor.get("model_id")),
    )


def _record(record: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    # whole records are compared: a damaged one must not take the good one of the same id along
    if (one := text_of(record.get("id"))) and not seen.first("agent-trace", f"{one}:{json_text(record)}"):
        return
    tool, metadata = table_of(record.get("tool")), table_of(record.get("metadata"))
    told = {"agent": text_of(tool.get("name")), "version": text_of(tool.get("version"))}
    at, known = milliseconds(record.get("timestamp")), first_text(metadata, "session_id", "conversation_id")
    for file in list_of(record.get("files")):
        path = text_of(table_of(file).get("path"))
        if path in _EVENTS:
            yield from opening(seen, known, place, at, **told)
            if path == ".shell-history":
                yield from _command(metadata, known, at, place)
            continue
        if not path or not isinstance(file.get("conversations"), list):
            yield Quarantined(place, "a file without conversations" if path else "no file")
            continue
        for conversation in file["conversations"]:
            if not isinstance(conversation, dict) or not isinstance(conversation.get("ranges"), list):
                yield Quarantined(place, "a conversation without ranges")
                continue
            session = known or _session(conversation)
            yield from opening(seen, session, place, at, **told)
            yield from _ranges(record, conversation, session, path, place)


def _ranges(
    record: dict[str, Any], conversation: dict[str, Any], session: str, path: str, place: Place
) -> Iterator[Attribution | Quarantined]:
    for one in conversation["ranges"]:
        lines = _range(table_of(one))
        if lines is None:
            yield Quarantined(place, "not a range of lines")
            continue
        contributor = table_of(one.get("contributor")) or table_of(conversation.get("contributor"))
        yield Attribution(
            session=session,
            id=text_of(record.get("id")),
            at=milliseconds(record.get("timestamp")),
            place=place,
            commit=text_of(table_of(record.get("vcs")).get("revision")),
            path=path,
            start=lines[0],
            end=lines[1],
            author=_author(contributor),
            agent=text_of(table_of(record.get("tool")).get("name")),
            model=text_of(contributor.get("model_id")),
        )


def _command(metadata: dict[str, Any], session: str, at: int | None, place: Place) -> Iterator[ToolUse]:
    if command := text_of(metadata.get("command")):
        yield ToolUse(
            session=session,
            id=text_of(metadata.get("tool_use_id")),
            at=at,
            place=place,
            name=first_text(metadata, "tool_name") or "shell",
            arguments=json_text({"command": command}),
        )


def _session(conversation: dict[str, Any]) -> str:
    """The conversation's address, else that of the session it names as related."""
    if url := text_of(conversation.get("url")):
        return url
    related = (table_of(one) for one in list_of(conversation.get("related")))
    return next((text_of(one.get("url")) for one in related if one.get("type") == "session"), "")


def _range(record: dict[str, Any]) -> tuple[int, int] | None:
    start, end = record.get("start_line"), record.get("end_line", record.get("start_line"))
    if type(start) is not int or type(end) is not int or not 1 <= start <= end < 1 << 31:
        return None
    return start, end


def _author(contributor: dict[str, Any]) -> Author:
    return _AUTHORS.get(text_of(contributor.get("type")), "unknown")
