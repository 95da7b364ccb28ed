"""Foreign text made fit to show: nothing invisible, redacted, cut; in this order.

A character that does not show could split a secret so that no detector knows it; so those go first. And a
secret that is cut in half is one no more to a detector; so the cut comes last.
"""

from __future__ import annotations

import re

from cursorbench.redaction import redact

_INVISIBLE = re.compile(  # control, format, private and half characters, but for line breaks and tabs
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)


def visible(text: str) -> str:
    """The text without what does not show or turns its direction."""
    return _INVISIBLE.sub("", text)


def fit(text: str, limit: int) -> str:
    """At most `limit` characters of a text that somebody else wrote, and a mark where it was cut."""
    shown = _shown(text)
    return shown if len(shown) <= limit else shown[:limit].rstrip() + "…"


def fit_end(text: str, limit: int) -> str:
    """As `fit`, but the end of the text: where an answer says what became of the request."""
    shown = _shown(text)
    return shown if len(shown) <= limit else "…" + shown[len(shown) - limit :].lstrip()


def _shown(text: str) -> str:
    return redact(visible(text)).text.strip()
