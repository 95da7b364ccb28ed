"""Signal `dissatisfied_followup`: probability that the user's next message says the answer was no good.

The embedded default: a logistic model over features one can read (pasted trace, "still not", correction,
a repeat of the request, praise, going on to the next thing), in `followup_model.toml`; under a
millisecond a message, no network. Moving on to the next thing is satisfaction.

Explicit behaviour outranks text. A thumb decides by itself, with a message or without; so does an
interruption where there is no thumb. When an edit of the episode ended undone (`edits.py`: refused or
reverted in time, and not made good by a later edit), whatever message comes is taken for dissatisfaction.
With no message, thumb or interruption in time the signal is not known, an edit that ended undone included:
there is no follow-up to judge then, and what the undoing itself says is
in `edit_persistence` and `edit_rejected` already.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from stages.distill.text import has_trace, prose, similarity, words
from stages.records import Event

EXPLICIT_NO = 0.95
EXPLICIT_YES = 0.05
_ALIKE = 0.6  # cosine of words from which on a message begins to repeat the request
_INTERRUPTED = re.compile(r"\[?request interrupted by user", re.IGNORECASE)


@dataclass(frozen=True)
class Model:
    """Weights are log-odds. A feature without pattern is computed in `features`."""

    bias: float
    opening_characters: int
    weights: dict[str, float]
    patterns: dict[str, re.Pattern[str]]
    at_opening: frozenset[str]


def features(message: str, request: str, asked: bool = False) -> dict[str, float]:
    """What is looked at, by name; 0 or 1, `repeats` in between.

    Args:
        message: the user's next message.
        request: the request that the answer before it was for ("" when it is not known).
        asked: the answer was a question, so saying it again, or "no, the other one", only answers it.
    """
    model = load_model()
    said = prose(message)
    resolved = model.patterns["resolved"]
    plain = resolved.sub(" resolved ", said)
    opening = plain[: model.opening_characters]
    found = {
        name: float(pattern.search(opening if name in model.at_opening else plain) is not None)
        for name, pattern in model.patterns.items()
    }
    found["resolved"] = float(plain != said)
    found["trace"] = float(has_trace(message))
    found["interrupted"] = float(_INTERRUPTED.search(message) is not None)
    alike = similarity(said, prose(request)) if len(words(said)) >= 2 else 0.0
    found["repeats"] = max(0.0, alike - _ALIKE) / (1 - _ALIKE)
    found["question"] = float(said.rstrip().endswith("?"))
    if asked:
        found["repeats"] = found["corrects"] = 0.0
    return found


def probability(message: str, request: str = "", asked: bool = False) -> float:
    """Probability in (0, 1) that `message` says the answer to `request` was no good."""
    model = load_model()
    found = features(message, request, asked)
    score = model.bias + sum(model.weights[name] * value for name, value in found.items())
    return 1.0 / (1.0 + math.exp(-score))


def dissatisfied_followup(
    events: Sequence[Event], request: str, asked: bool, undone: bool, answered_at: int, horizon_ms: int
) -> float | None:
    """The signal of one episode.

    Args:
        events: the episode's events with their data opened.
        request: text of the episode's request.
        asked: the episode ended in a question.
        undone: an edit of the episode ended undone, see `Edits.undone`.
        answered_at: event time of the last answer (ms).
        horizon_ms: a message later than this is not about the answer.

    Returns:
        A probability; None when there was no message, thumb or interruption in time.
    """
    in_time = sorted(
        (e for e in events if e.at <= answered_at + horizon_ms), key=lambda e: (e.at, e.wall, e.id)
    )
    thumbs = [e.data.get("value") for e in in_time if e.type == "thumbs"]
    if thumbs and isinstance(thumbs[-1], int | float):
        return EXPLICIT_NO if thumbs[-1] < 0 else EXPLICIT_YES
    if any(e.type == "interrupted" for e in in_time):
        return EXPLICIT_NO
    messages = [e.data.get("text") for e in in_time if e.type == "user_message"]
    texts = [text for text in messages if isinstance(text, str) and text.strip()]
    if not texts:
        return None
    if undone:
        return EXPLICIT_NO
    return probability(texts[0], request, asked)


@cache
def load_model() -> Model:
    """The shipped model."""
    text = resources.files("stages.distill.signals").joinpath("followup_model.toml").read_text("utf-8")
    table = tomllib.loads(text)
    entries = table["features"]
    return Model(
        bias=table["bias"],
        opening_characters=table["opening_characters"],
        weights={name: entry["weight"] for name, entry in entries.items()},
        patterns={
            name: re.compile("|".join(f"(?:{p})" for p in entry["patterns"]), re.IGNORECASE | re.MULTILINE)
            for name, entry in entries.items()
            if "patterns" in entry
        },
        at_opening=frozenset(name for name, entry in entries.items() if entry.get("opening")),
    )
