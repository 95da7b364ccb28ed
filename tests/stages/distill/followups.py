"""What the embedded model says of one follow-up, for tests."""

from __future__ import annotations

from stages.distill.signals.dissatisfied_followup import probabilities
from stages.distill.signals.followup.features import Followup


def probability(message: str, request: str = "", answer: str = "", asked: bool = False) -> float:
    """Of a message by itself."""
    return probabilities([Followup(message, request, answer, asked)])[0]
