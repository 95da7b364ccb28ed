"""Answers of Claude Code that a person stopped while they were written. For `claude_code`.

The client keeps what had come by then as a message of its own: the model is `<synthetic>`, as of its words
about an error, and the mark of the stop follows (2.1.87; `onCancel` in its source). It is an answer, of a
model that is not told. Not for: calls that were stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cursorbench.sessions import claude_code_said as said
from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import table_of, text_of

_LINES = 8  # notes of the client that may stand between the two
_Found = tuple[Place, dict[str, Any]] | Quarantined


def as_answers(found: Iterator[_Found]) -> Iterator[_Found]:
    """The lines in their order; those of such answers have no model, as of one whose model is not told."""
    held: list[_Found] = []  # what may be one, and the notes behind it
    for one in found:
        line = {} if isinstance(one, Quarantined) else one[1]
        if held and line.get("type") not in ("user", "assistant") and len(held) <= _LINES:
            held.append(one)
            continue
        if held:
            yield from _answer(held) if _stops(line, held[0]) else held
        held = [one] if _may_be(line) else []
        if not held:
            yield one
    yield from held


def _may_be(line: dict[str, Any]) -> bool:
    message = table_of(line.get("message"))
    own = line.get("type") == "assistant" and message.get("model") == said.NO_MODEL
    words = said.plain(message.get("content"))
    return own and line.get("isApiErrorMessage") is not True and words not in ("", said.NOTHING)


def _stops(line: dict[str, Any], answer: _Found) -> bool:
    """Whether this is the mark of a stop right behind the answer."""
    assert not isinstance(answer, Quarantined)
    behind = text_of(line.get("parentUuid")) == text_of(answer[1].get("uuid")) != ""
    words = said.plain(table_of(line.get("message")).get("content"))
    return line.get("type") == "user" and behind and words == said.STOPPED


def _answer(held: list[_Found]) -> Iterator[_Found]:
    first, *rest = held
    assert not isinstance(first, Quarantined)
    place, line = first
    yield place, line | {"message": table_of(line["message"]) | {"model": ""}}
    yield from rest
