"""Foreign text made fit to show: nothing invisible, redacted, cut; in this order.

A character that does not show could split a secret so that no detector knows it; so those go first. And a
secret that is cut in half is one no more to a detector; so the cut comes last.
"""

from __future__ import annotations

from cursorbench.redaction import Redactor, findings, mask, visible


def fit(text: str, limit: int, redactor: Redactor | None = None) -> str:
    """At most `limit` characters of a text that somebody else wrote, and a mark where it was cut.

    Args:
        redactor: keeps count of what was masked, in the whole text.
    """
    shown = _shown(text, redactor)
    return shown if len(shown) <= limit else shown[:limit].rstrip() + "…"


def fit_end(text: str, limit: int, redactor: Redactor | None = None) -> str:
    """As `fit`, but the end of the text: where an answer says what became of the request."""
    shown = _shown(text, redactor)
    return shown if len(shown) <= limit else "…" + shown[len(shown) - limit :].lstrip()


def identifier(name: str) -> str:
    """An id for people, to be looked up by: masked but for what only looks random, as ids do."""
    shown = visible(name)
    for start, end, kind in reversed(findings(shown)):
        if kind != "high_entropy":
            shown = shown[:start] + mask(kind) + shown[end:]
    return shown


def _shown(text: str, redactor: Redactor | None) -> str:
    return (redactor or Redactor())(visible(text)).strip()
