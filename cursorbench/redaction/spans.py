"""What a detector finds: a stretch of text and its kind. Not for: detectors, masking."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["private_key", "jwt", "api_key", "credential", "email", "home_path", "high_entropy"]

# where two findings overlap, the first of these names the mask
KINDS: Final[tuple[Kind, ...]] = (
    "private_key",
    "jwt",
    "api_key",
    "credential",
    "email",
    "home_path",
    "high_entropy",
)


class Span(NamedTuple):
    """`text[start:end]` is to be masked. `anchor` is where the finding begins, its key word included."""

    start: int
    end: int
    kind: Kind
    anchor: int


_LONGEST_QUOTED = 256


def to_quote(text: str, quote: str, start: int, end: int) -> int:
    """Where a value ends that was read from `start` to `end`: if a `quote` was before it, at the next one.

    Only on the same line, and not far away: in broken text there may be none.
    """
    found = text.find(quote, end, start + _LONGEST_QUOTED) if quote else end
    return found if found >= 0 and "\n" not in text[end:found] else end
