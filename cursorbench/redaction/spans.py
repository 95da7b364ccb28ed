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
