"""Conversations that have grown too long: their client asks for a summary, and goes on from it in a new one.

By the words that clients ask in, and tell the summary in (`cursorbench/sessions/automatic.py`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from cursorbench.sessions import summaries
from cursorbench.sessions.automatic import automatic_of, is_notice
from stages.gateway.attribution import text_of

Messages = Sequence[Mapping[str, Any]]
_LOOKED = 1 << 16  # characters of a message's end: what is asked for a summary is the last that it says


def wanted(messages: Messages) -> bool:
    """Whether a request is the client's for a summary, and asks for nothing else."""
    last = messages[-1] if messages else {}
    return last.get("role") == "user" and summaries.begins(text_of(last.get("content"))[-_LOOKED:]) >= 0


def continued(messages: Messages) -> bool:
    """Whether the conversation begins with the summary of another."""
    before = takewhile(lambda one: one.get("role") != "assistant", messages)
    return any(_is_summary(text) for text in _texts(before))


def goes_on(messages: Messages) -> bool:
    """Whether a request asks for nothing new: for a summary, or to go on behind one."""
    if wanted(messages):
        return True
    if not continued(messages):
        return False
    return _is_summary(next((text for text in _texts(reversed(messages)) if not is_notice(text)), ""))


def _texts(messages: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    return (text_of(one.get("content")) for one in messages if one.get("role") == "user")


def _is_summary(text: str) -> bool:
    return automatic_of(text) == "continuation"
