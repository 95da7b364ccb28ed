"""The follow-up messages that text decides, redacted and shortened: what a judge behind an endpoint sees.

Behaviour has been asked first (`signals/dissatisfied_followup.py`). Redaction comes before shortening, so
that no cut hides a secret from it. Not for: asking (`judge.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cursorbench.redaction import Kind, Redactor
from cursorbench.redaction.invisible import visible
from stages.distill.signals.followup.features import Followup

READ_CHARACTERS = 20_000  # of each end of a longer text
MESSAGE_CHARACTERS = 1400
CONTEXT_CHARACTERS = 1000


@dataclass(frozen=True)
class Question:
    """One message to be judged; every text is redacted."""

    episode: str
    message: str
    request: str
    answer_end: str
    masked: dict[Kind, int] = field(default_factory=dict, compare=False)  # how often, in all three


def question(episode: str, case: Followup) -> Question:
    """What a judge is asked about one episode's follow-up."""
    redactor = Redactor()
    return Question(
        episode,
        shown(case.message, MESSAGE_CHARACTERS, redactor),
        shown(case.request, CONTEXT_CHARACTERS, redactor),
        _safe(case.answer, redactor).strip()[-CONTEXT_CHARACTERS:],
        dict(redactor.counts),
    )


def shown(text: str, limit: int, redactor: Redactor | None = None) -> str:
    """Redacted, and of a longer text the first two thirds and the last third of `limit` characters."""
    text = _safe(text, redactor or Redactor()).strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n[...]\n{text[head - limit :]}"


def _safe(text: str, redactor: Redactor) -> str:
    if len(text) > 2 * READ_CHARACTERS:
        text = text[:READ_CHARACTERS] + "\n" + text[-READ_CHARACTERS:]
    return redactor(visible(text))
