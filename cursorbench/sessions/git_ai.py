"""git-ai authorship notes (authorship/3.0.0): which lines of a commit came from which agent session.

A note is a file as `git notes --ref=ai show COMMIT` prints it; `read_repository` reads all of refs/notes/ai.
Specification: git-ai-project/git-ai, specs/git_ai_standard_v3.0.0.md. Not for: working logs (.git/ai).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from cursorbench.sessions import claude_code_tools, spoken
from cursorbench.sessions.git_environment import only_reading
from cursorbench.sessions.items import (
    AgentTurn,
    Attribution,
    Commit,
    Feedback,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
)
from cursorbench.sessions.reading import list_of, milliseconds, parsed, table_of, text_of
from cursorbench.sessions.records import json_text, number, opening
from cursorbench.sessions.seen import Seen

KIND = "git-ai"
MAX_NOTE = 256 << 20  # bytes; the metadata that explains the lines stand at a note's end
_TOO_LARGE = f"the note is larger than {MAX_NOTE >> 20} MiB"

_SCHEMA = re.compile(rb'"schema_version"\s*:\s*"authorship/')
_KEY = r"(?:[sh]_[0-9a-f]{4,64}(?:::t_[0-9a-f]+)?|[0-9a-f]{7,64})"
_ANY_KEY = r"[\w.:-]{1,200}"  # also `human`, `ai_agent`, and an agent's own ids
_ENTRY = re.compile(rf"  ({_ANY_KEY}) (\S+)")
_FIRST_ENTRY = re.compile(rf"\s*\S[^\n]*\n  {_KEY} [0-9][0-9,-]*\r?\n".encode())
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NOBODYS = "ai_agent"  # an agent wrote these lines, whose session nothing tells
_WITH_RESULTS = (1, 0, 28)  # git-ai's last version that told Claude Code's tool results as a user's messages
_FAILED = re.compile(
    r"\s*(?:<tool_use_error>|Exit code [1-9]|Error: |InputValidationError|The user doesn't want to "
    r"|\[Request interrupted)"
)
_STATISTICS = ("total_additions", "total_deletions", "accepted_lines", "overriden_lines")


class _Lines(msgspec.Struct):
    """One attestation: a key wrote these lines of a file."""

    place: Place
    path: str
    key: str
    start: int
    end: int


def recognises(path: Path, head: bytes) -> bool:
    """A note's attestation, or its metadata behind the divider."""
    if _FIRST_ENTRY.match(head):
        return True
    divider = head.startswith(b"---") or b"\n---" in head
    return divider and not head.startswith(b"{") and _SCHEMA.search(head) is not None


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """A note's sessions, messages (old notes have them), commits and attributions."""
    if path.stat().st_size > MAX_NOTE:
        yield Quarantined(Place(str(path)), _TOO_LARGE)
        return
    yield from note(path.read_bytes(), str(path), _commit_of(path), seen)


def read_repository(repository: Path, seen: Seen) -> Iterator[Read]:
    """All notes below refs/notes/ai of a repository. Raises OSError when git cannot be run on it."""
    git = ["git", "-C", str(repository)]
    environment = only_reading()
    listed = subprocess.run(
        [*git, "notes", "--ref=ai", "list"], env=environment, capture_output=True, check=False
    )
    if listed.returncode:
        raise OSError(listed.returncode, "git could not list its notes", str(repository))
    pipe = subprocess.PIPE
    with subprocess.Popen([*git, "cat-file", "--batch"], env=environment, stdin=pipe, stdout=pipe) as objects:
        if objects.stdin is None or objects.stdout is None:
            raise OSError("git has no pipes")
        for line in listed.stdout.decode("ascii", "replace").splitlines():
            blob, _, commit = line.partition(" ")
            objects.stdin.write(f"{blob}\n".encode("ascii", "replace"))
            objects.stdin.flush()
            file = f"{repository}:refs/notes/ai/{commit}"
            header = objects.stdout.readline().split()
            if len(header) != 3 or not header[2].isdigit():
                yield Quarantined(Place(file), "the note's object is missing")
                continue
            left = int(header[2])
            if left > MAX_NOTE:
                while left and (read := len(objects.stdout.read(min(left, 1 << 20)))):
                    left -= read
                yield Quarantined(Place(file), _TOO_LARGE)
            else:
                yield from note(objects.stdout.read(left), file, commit, seen)
            objects.stdout.readline()


def note(data: bytes, file: str, commit: str, seen: Seen) -> Iterator[Read]:
    """The items of one note; `commit` is the one it is attached to, "" when only the note can tell."""
    lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    divider = next((i for i, line in enumerate(lines) if line.rstrip("\r") == "---"), len(lines))
    attested: list[_Lines] = []
    for found in _attestations(lines[:divider], file):
        if isinstance(found, Quarantined):
            yield found
        else:
            attested.append(found)
    metadata: dict[str, Any] = {}
    if divider == len(lines):
        yield Quarantined(Place(file), "the note has no divider")
    else:
        value = parsed("\n".join(lines[divider + 1 :]).encode(errors="replace"))
        if isinstance(value, dict):
            metadata = value
        else:
            why = value if isinstance(value, str) else "not a JSON object"
            yield Quarantined(Place(file, divider + 2), f"the note's metadata: {why}")
    version = text_of(metadata.get("schema_version"))
    if metadata and not version.startswith("authorship/3."):
        yield Quarantined(Place(file, divider + 2), "unknown_version")
    yield from _told(metadata, attested, commit, Place(file, min(divider + 2, len(lines))), seen)


def _attestations(lines: list[str], file: str) -> Iterator[_Lines | Quarantined]:
    path = ""
    for number_, line in enumerate(lines, 1):
        text, place = line.rstrip(), Place(file, number_)
        if not text:
            continue
        if not text.startswith("  "):
            quoted = len(text) > 2 and text.startswith('"') and text.endswith('"')
            path = text[1:-1] if quoted else text
            continue
        entry = _ENTRY.fullmatch(text)
        if entry is None or not path:
            yield Quarantined(place, "not an attestation" if path else "an attestation without a file")
            continue
        for part in filter(None, entry[2].split(",")):
            found = _RANGE.fullmatch(part)
            start, end = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
            if 1 <= start <= end:
                yield _Lines(place, path, entry[1], start, end)
            else:
                yield Quarantined(place, "not a range of lines")


def _told(
    metadata: dict[str, Any], attested: list[_Lines], commit: str, place: Place, seen: Seen
) -> Iterator[Read]:
    commit = commit or text_of(metadata.get("base_commit_sha"))
    known = {**table_of(metadata.get("prompts")), **table_of(metadata.get("sessions"))}
    version = text_of(metadata.get("git_ai_version"))
    for key, record in known.items():
        if not isinstance(record, dict):
            yield Quarantined(place, "a session's record is no object")
            continue
        agent = table_of(record.get("agent_id"))
        session = text_of(agent.get("id")) or key
        yield from opening(seen, session, place, None, agent=text_of(agent.get("tool")), version=version)
        results = text_of(agent.get("tool")) == "claude" and _is_old(version)
        yield from _messages(record, session, place, seen, results)
        yield from _statistics(record, session, f"{commit}:{key}", place, seen)
        paths = dict.fromkeys(one.path for one in attested if one.key.partition("::")[0] == key)
        if commit and paths and seen.first(session, f"commit:{commit}"):
            yield Commit(session=session, place=place, sha=commit, paths=tuple(paths))
    for one in attested:
        if seen.first(one.key, f"{commit or place.file}:{one.path}:{one.start}-{one.end}"):
            yield _attribution(one, known, commit)


def _attribution(one: _Lines, known: dict[str, Any], commit: str) -> Attribution:
    key = one.key.partition("::")[0]
    human = key.startswith("h_") or key == "human"
    agent = table_of(table_of(known.get(key)).get("agent_id"))
    author: Literal["ai", "human"] = "human" if human else "ai"
    return Attribution(
        session="" if human or key == _NOBODYS else text_of(agent.get("id")) or key,
        id=one.key,
        place=one.place,
        commit=commit,
        path=one.path,
        start=one.start,
        end=one.end,
        author=author,
        agent=text_of(agent.get("tool")),
        model=_model(agent),
    )


def _messages(
    record: dict[str, Any], session: str, place: Place, seen: Seen, results: bool
) -> Iterator[Read]:
    """Transcripts, in notes of git-ai before 1.3.4. Each note has the whole one up to its commit again.

    Args:
        results: what tools gave stands there under the role `user`, behind their calls.
    """
    model, called = _model(table_of(record.get("agent_id"))), list[str]()
    for i, message in enumerate(list_of(record.get("messages"))):
        entry = table_of(message)
        kind, text, one = (text_of(entry.get(name)) for name in ("type", "text", "id"))
        told: dict[str, Any] = {
            "session": session,
            "at": milliseconds(entry.get("timestamp")),
            "place": place,
        }
        ended = called.pop(0) if kind == "user" and results and called else ""
        if kind == "tool_use":
            one = one or f"tool-{i}"
            called.append(one)
        elif kind != "user":
            called.clear()  # what has not ended by then gave no text
        if not seen.first(session, f"message:{i}:{kind}:{text}"):
            continue
        match kind:
            case "user" if ended:
                outcome, reason = claude_code_tools.outcome(
                    {"is_error": bool(_FAILED.match(text))}, None, text
                )
                yield ToolEnd(id=ended, outcome=outcome, reason=reason, text=text, **told)
            case "user":
                yield from spoken.turns(text, id=one, **told)
            case "assistant":
                yield AgentTurn(text=text, model=model, id=one, **told)
            case "thinking" | "plan":
                yield AgentTurn(text="", thinking=text, model=model, id=one, **told)
            case "tool_use":
                name = text_of(entry.get("name"))
                yield ToolUse(name=name, arguments=json_text(entry.get("input")), id=one, **told)
            case _:
                yield Quarantined(place, "unknown_type")


def _model(agent: dict[str, Any]) -> str:
    """The model of a session; git-ai writes "unknown" where an agent told it none."""
    model = text_of(agent.get("model"))
    return "" if model == "unknown" else model


def _is_old(version: str) -> bool:
    """Whether this git-ai told tools' results; the first ones wrote no version."""
    found = re.match(r"(?:development:)?(\d+)\.(\d+)\.(\d+)", version)
    return not version or (found is not None and tuple(map(int, found.groups())) <= _WITH_RESULTS)


def _statistics(
    record: dict[str, Any], session: str, target: str, place: Place, seen: Seen
) -> Iterator[Feedback]:
    """What the note counted: lines of the session in all, in the commit, and changed by a human before it."""
    for name in _STATISTICS:
        value = number(record.get(name))
        if value is not None and seen.first(session, f"{name}:{target}"):
            yield Feedback(session=session, place=place, target=target, name=f"git_ai.{name}", value=value)


def _commit_of(path: Path) -> str:
    """The commit a note's file is named for, plain or in a folder of its first digits."""
    for name in (path.stem, path.name, path.parent.name + path.stem):
        if _SHA.fullmatch(name.lower()):
            return name.lower()
    return ""
