"""The follow-up messages that text decides, redacted and shortened: what a judge behind an endpoint sees.

Behaviour has been asked first (`signals/dissatisfied_followup.py`). Redaction comes before shortening, so
that no cut hides a secret from it. Not for: asking (`judge.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cursorbench.redaction import redact
from stages.distill.facts import Episode
from stages.distill.signals.dissatisfied_followup import Followup, followup
from stages.distill.signals.edits import edits_of
from stages.distill.signals.outcome import outcome
from stages.distill.spec import RewardSpec

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


def questions(episodes: Iterable[Episode], spec: RewardSpec) -> Iterator[Question]:
    """Those of the episodes whose follow-up is known by its text alone, in their order."""
    for episode in episodes:
        if episode.forgotten:
            continue
        answered_at = episode.generations[-1]["at"]
        edits = edits_of(episode.events, answered_at, round(1000 * spec.horizons.persistence_s))
        _, asked = outcome(edits, episode.answer)
        found = followup(
            episode.events,
            episode.request,
            episode.answer,
            bool(asked),
            edits.undone,
            answered_at,
            round(1000 * spec.horizons.followup_s),
        )
        if isinstance(found, Followup):
            yield Question(
                episode.row["id"],
                shown(found.message, MESSAGE_CHARACTERS),
                shown(found.request, CONTEXT_CHARACTERS),
                _safe(found.answer).strip()[-CONTEXT_CHARACTERS:],
            )


def shown(text: str, limit: int) -> str:
    """Redacted, and of a longer text the first two thirds and the last third of `limit` characters."""
    text = _safe(text).strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n[...]\n{text[head - limit :]}"


def _safe(text: str) -> str:
    if len(text) > 2 * READ_CHARACTERS:
        text = text[:READ_CHARACTERS] + "\n" + text[-READ_CHARACTERS:]
    return redact(text).text
