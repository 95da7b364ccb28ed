"""Exact replacements in a text: the one way files are edited. Pure.

An edit names the text that is there and the text that should be. It is never guessed what was meant:
a text that is missing, or there more than once, is refused, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cursorbench.harness.results import RefusedError


@dataclass(frozen=True)
class Replacement:
    """`old` by `new`: at its one place, or at all of them."""

    old: str
    new: str
    everywhere: bool = False


def replace(before: str, one: Replacement) -> str:
    """The text after one replacement. Raises RefusedError (not_found, ambiguous, no_change)."""
    places = before.count(one.old) if one.old else 0
    if places == 0:
        raise RefusedError("not_found", "old text not found")
    if places > 1 and not one.everywhere:
        raise RefusedError("ambiguous", "old text is there more than once")
    after = before.replace(one.old, one.new)
    if after == before:
        raise RefusedError("no_change", "old and new are the same")
    return after


def replace_all(before: str, edits: Sequence[Replacement]) -> str:
    """The text after all replacements, one on the other. Raises RefusedError, saying at which."""
    after = before
    for number, one in enumerate(edits, 1):
        try:
            after = replace(after, one)
        except RefusedError as refused:
            which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise RefusedError(refused.error, f"{which}{refused.text}") from None
    if after == before:
        raise RefusedError("no_change", "the edits undo each other")
    return after


def encode(text: str) -> bytes:
    """The text as UTF-8. Raises RefusedError: lone surrogates are legal JSON and no Unicode."""
    try:
        return text.encode()
    except ValueError as error:
        raise RefusedError("arguments", "new text is not Unicode") from error
