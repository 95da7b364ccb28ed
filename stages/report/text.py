"""Foreign text made fit to show: no control or direction characters, and cut."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"


def clean(text: str, limit: int) -> str:
    """At most `limit` characters of a text, what is invisible or turns the direction left out."""
    shown = "".join(c for c in text[: 4 * limit] if c in _KEPT or unicodedata.category(c)[0] != "C").strip()
    cut = len(shown) > limit or len(text) > 4 * limit
    return shown[:limit].rstrip() + "…" if cut else shown
