"""What the classifier of follow-ups is compared with: a number per message, higher = dissatisfied."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from followup.learn import Labelled

from stages.distill.text import has_trace, prose, similarity, words

PREVIOUS = Path(__file__).resolve().parents[1] / "followup/previous_model.toml"
_KEYWORDS = re.compile(
    r"\b(?:wrong|incorrect|error|errors|exception|fail|fails|failed|failing|broken|broke|bug|crash|crashes|"
    r"issue|problem|not working|doesn'?t work|didn'?t work|still|again|undo|revert|why did you|missing|no,|"
    r"not what)\b",
    re.IGNORECASE,
)


def all_alike(rows: Sequence[Labelled]) -> list[float]:
    """The same for every message: at the best threshold all are dissatisfied, or none."""
    return [0.5] * len(rows)


def keywords(rows: Sequence[Labelled]) -> list[float]:
    """How many words of a list of complaints a message has, as a share of five."""
    return [min(1.0, len(_KEYWORDS.findall(row.message)) / 5) for row in rows]


def sentiment(rows: Sequence[Labelled]) -> list[float]:
    """VADER's lexicon (Hutto & Gilbert 2014): (1 - compound) / 2."""
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyser = SentimentIntensityAnalyzer()
    return [(1 - analyser.polarity_scores(row.message)["compound"]) / 2 for row in rows]


def previous(rows: Sequence[Labelled]) -> list[float]:
    """The model shipped before: hand-set log-odds over hand-set patterns."""
    table: dict[str, Any] = tomllib.loads(PREVIOUS.read_text("utf-8"))
    compiled = {
        name: re.compile("|".join(f"(?:{p})" for p in entry["patterns"]), re.IGNORECASE | re.MULTILINE)
        for name, entry in table["features"].items()
        if "patterns" in entry
    }
    weights = {name: entry["weight"] for name, entry in table["features"].items()}
    opening = {name for name, entry in table["features"].items() if entry.get("opening")}
    said, asked_for = prose([row.message for row in rows]), prose([row.request for row in rows])
    return [
        _previous(row, texts, table, compiled, weights, opening)
        for row, texts in zip(rows, zip(said, asked_for, strict=True), strict=True)
    ]


def _previous(
    row: Labelled,
    prose_of: tuple[str, str],
    table: dict[str, Any],
    compiled: dict[str, re.Pattern[str]],
    weights: dict[str, float],
    opening: set[str],
) -> float:
    said, asked_for = prose_of
    plain = compiled["resolved"].sub(" resolved ", said)
    start = plain[: table["opening_characters"]]
    found = {
        name: float(pattern.search(start if name in opening else plain) is not None)
        for name, pattern in compiled.items()
    }
    alike = similarity(words(said), words(asked_for)) if len(words(said)) >= 2 else 0.0
    found |= {
        "resolved": float(plain != said),
        "trace": float(has_trace([row.message])[0]),
        "repeats": max(0.0, alike - 0.6) / 0.4,
        "question": float(said.rstrip().endswith("?")),
    }
    if row.answer_end.rstrip().endswith("?"):
        found["repeats"] = found["corrects"] = 0.0
    score = table["bias"] + sum(weights[name] * value for name, value in found.items())
    return 1 / (1 + math.exp(-score))


BASELINES: dict[str, Callable[[Sequence[Labelled]], list[float]]] = {
    "all_alike": all_alike,
    "keywords": keywords,
    "sentiment": sentiment,
    "previous": previous,
}
