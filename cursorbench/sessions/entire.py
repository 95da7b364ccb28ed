"""Entire's checkpoints, exported as files: what a session's work became, and whose lines were committed.

A checkpoint is a folder with metadata.json and one numbered folder a session: metadata.json, full.jsonl (the
transcript, in its agent's own format, read by that format's adapter), transcript.jsonl (`entire_compact`),
prompt.txt. What a repository holds of them is read by `entire_branch`. Not for: the summaries a model wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cursorbench.sessions import entire_compact, kinds, spoken
from cursorbench.sessions.entire_beside import METADATA, beside, session_of
from cursorbench.sessions.items import Commit, Feedback, Place, Quarantined, Read, SessionStart
from cursorbench.sessions.reading import (
    BYTE_ORDER_MARK,
    json_document,
    list_of,
    milliseconds,
    table_of,
    text_of,
)
from cursorbench.sessions.seen import Seen

KIND = "entire"
_TRANSCRIPT = "full.jsonl"
_WITHOUT_ITEMS = frozenset({"context.md", "content_hash.txt"})  # the prompts again, and a checksum
_BETWEEN_PROMPTS = "\n\n---\n\n"
_MAX_PROMPTS = 64 << 20  # bytes
_IMPORTED = "imported"  # kind of a session whose `commit_sha` is no more than a place to show it at
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class CodeCommit(NamedTuple):
    """A commit whose trailer names a checkpoint."""

    sha: str
    at: int | None
    message: str


Committed = Mapping[str, Sequence[CodeCommit]]  # by checkpoint


def recognises(path: Path, head: bytes) -> bool:
    """Metadata with a checkpoint's id, and the files beside it that have no format of their own."""
    if path.name == METADATA:
        return head.lstrip().startswith(b"{") and b'"checkpoint_id"' in head
    if path.name == "prompt.txt" or path.name in _WITHOUT_ITEMS:
        return "checkpoint_id" in beside(path)
    return entire_compact.recognises(path, head)


def read(path: Path, seen: Seen, committed: Committed | None = None) -> Iterator[Read]:
    """See kinds. Any other file is read as the kind it is recognised as.

    `committed` are the commits that took a checkpoint's work, where a repository tells them.
    """
    if path.name == METADATA:
        document = json_document(path)
        if isinstance(document, Quarantined):
            yield document
        else:
            yield from _metadata(table_of(document), path, seen, committed or {})
    elif path.name == "prompt.txt":
        if not _has_transcript(path):  # which tells them, each in its place
            session = session_of(beside(path)) or path.parent.name
            yield from _prompts(_start_of(path), session, Place(str(path)), seen)
    elif path.name == entire_compact.NAME:
        if _is_needed(path):
            about = beside(path)
            yield from entire_compact.read(path, session_of(about) or path.parent.name, about, seen)
    elif path.name not in _WITHOUT_ITEMS:
        if found := _own_kind(path):
            yield from kinds.adapters()[found].read(path, seen)
        elif path.name != _TRANSCRIPT or not (path.parent / entire_compact.NAME).exists():
            yield Quarantined(Place(str(path)), "unknown_kind")


def _is_needed(compact: Path) -> bool:
    """Whether the agent's own transcript cannot be read; one that is empty is told by another checkpoint."""
    own = compact.parent / _TRANSCRIPT
    return not own.exists() or (own.stat().st_size > 0 and _own_kind(own) is None)


def _own_kind(path: Path) -> str | None:
    """The kind of an agent's own transcript; None for what has no reader."""
    found = kinds.kind_of(path)
    return None if found == KIND else found


def _metadata(told: dict[str, Any], path: Path, seen: Seen, committed: Committed) -> Iterator[Read]:
    place, checkpoint = Place(str(path)), text_of(told.get("checkpoint_id"))
    session, at = session_of(told), milliseconds(told.get("created_at"))
    if not checkpoint:
        yield Quarantined(place, "metadata without a checkpoint_id")
    elif not session and not isinstance(told.get("sessions"), list):
        yield Quarantined(place, "metadata with neither a session_id nor sessions")
    elif not seen.first(session, f"checkpoint {checkpoint}"):
        return
    elif not session:  # the checkpoint's own, over all its sessions
        yield from _shares("entire.combined.", told.get("combined_attribution"), "", checkpoint, place)
    else:
        if not _has_transcript(path) and seen.first(session, "session start"):
            yield SessionStart(
                session=session,
                id=session,
                at=at,
                place=place,
                agent=text_of(told.get("agent")),
                branch=text_of(told.get("branch")),
            )
        for commit in _commits(told, checkpoint, path, committed):
            yield msgspec.structs.replace(commit, session=session, place=place)
        yield from _shares("entire.", told.get("initial_attribution"), session, checkpoint, place)


def _commits(told: dict[str, Any], checkpoint: str, path: Path, committed: Committed) -> Iterator[Commit]:
    """What took a session's work; nothing of a session that was imported from an agent's own logs.

    Without a repository these are the commits that the checkpoint links, else the one whose trailer names it.
    """
    paths = tuple(one for one in list_of(told.get("files_touched")) if isinstance(one, str))
    at = milliseconds(told.get("created_at"))
    whole = beside(path.parent)
    links = linked(whole) if whole.get("checkpoint_id") == checkpoint else []
    found = committed.get(checkpoint) or [CodeCommit(sha, at, "") for sha in links or [""]]
    for sha, when, message in () if told.get("kind") == _IMPORTED else found:
        yield Commit(
            session="", id=checkpoint, at=when, place=Place(""), sha=sha, message=message, paths=paths
        )


def linked(told: Mapping[str, Any]) -> list[str]:
    """The commits that a checkpoint's own metadata links, as Entire does where a message has no trailer."""
    found = (text_of(table_of(one).get("sha")) for one in list_of(told.get("linked_commits")))
    return [sha for sha in dict.fromkeys(found) if _SHA.fullmatch(sha)]


def _has_transcript(path: Path) -> bool:
    return any((path.parent / name).exists() for name in (_TRANSCRIPT, entire_compact.NAME))


def _prompts(text: str, session: str, place: Place, seen: Seen) -> Iterator[Read]:
    """The user's turns of a prompt.txt, which has neither times nor ids."""
    often: Counter[str] = Counter()
    for prompt in text.replace("\r\n", "\n").split(_BETWEEN_PROMPTS):
        often[prompt] += 1
        # checkpoints of one session repeat its prompts: the third "yes" here is the third "yes" there
        if not prompt.strip() or not seen.first(session, f"prompt {often[prompt]} {prompt}"):
            continue
        yield from spoken.turns(prompt.strip("\n"), session=session, place=place)


def _shares(
    prefix: str, attribution: object, session: str, checkpoint: str, place: Place
) -> Iterator[Feedback]:
    """Entire's own count of whose lines were committed, a number each."""
    at = milliseconds(table_of(attribution).get("calculated_at"))
    for name, value in table_of(attribution).items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
        if number and re.fullmatch(r"[a-z_]{1,40}", name):
            yield Feedback(
                session=session,
                id=checkpoint,
                at=at,
                place=place,
                target=checkpoint,
                name=prefix + name,
                value=float(value),
            )


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_PROMPTS).removeprefix(BYTE_ORDER_MARK).rstrip(b"\0").decode("utf-8", "replace")
