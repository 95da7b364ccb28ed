"""What somebody's verdict on an answer becomes: a thumb, or the outcome of the whole task.

Feedback comes under names that a team gave its metrics. A thumb is known by its own names; of any other
metric the settings say what it is (`[collect.metrics]`):

    has_errors = "outcome 1..0"  # true is -1, false 1
    accepted = "thumbs"          # true or a number over 0 is up, false or one under 0 is down
    tests_pass = "outcome"       # true is 1, false -1; a number as it is, bounded to -1 .. 1
    stars = "outcome 1..5"       # 1 is -1, 5 is 1, in between by its place; "5..1" where less is better
    seconds_lost = "thumbs 30..0"  # nearer to 0 than to 30 is up
    grade = "outcome poor..fair..good"  # of words, from the worst to the best: -1, 0, 1

Pure. Not for: which answer it is about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cursorbench.redaction import findings
from cursorbench.sessions.items import Feedback
from stages.records import Event, EventType

THUMBS = ("thumb", "thumbs", "thumbs_up", "thumb_up")
_NUMBER = r"-?\d{1,12}(?:\.\d{1,12})?"
_RULE = re.compile(rf"(thumbs|outcome)(?:\s+({_NUMBER})\.\.({_NUMBER}))?")
_LABEL = r"[^\W\d][\w -]{0,39}"
_LABELS = re.compile(rf"(thumbs|outcome)\s+({_LABEL}(?:\.\.{_LABEL}){{1,19}})")
_THUMB_WORDS = {"up": 1.0, "down": -1.0}
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Rule:
    """What a metric is; `worst` and `best` are its values that mean -1 and 1, None as they are.

    `labels`: the words that it may be, from the worst to the best, at equal distances.
    """

    kind: Literal["thumbs", "outcome"]
    worst: float | None = None
    best: float | None = None
    labels: tuple[str, ...] = ()

    def value(self, told: float | bool | str) -> float | None:
        """In [-1, 1]; None for what is no value of it."""
        if isinstance(told, str) and _word(told) in self.labels:
            return 2 * self.labels.index(_word(told)) / (len(self.labels) - 1) - 1
        told = _BOOLEANS.get(_word(told), told) if isinstance(told, str) else told
        if isinstance(told, bool) and {self.worst, self.best} != {0.0, 1.0}:
            return 1.0 if told else -1.0
        if isinstance(told, str):
            return _THUMB_WORDS.get(_word(told))
        if not math.isfinite(told):
            return None
        if self.worst is not None and self.best is not None:
            told = 2 * (told - self.worst) / (self.best - self.worst) - 1
        return max(-1.0, min(1.0, told))


_THUMB = Rule("thumbs")
_NAME = re.compile(r"[\w.:/-]{1,80}")


@lru_cache(4096)
def name_of(metric: str) -> str:
    """The metric's name for a count; not where it looks like words of a person, or has a secret in it."""
    return metric if _NAME.fullmatch(metric) and not findings(metric) else "(no name)"


def is_word(value: object) -> bool:
    """Whether it is one of the words that a metric's value may be: up, down, true, false."""
    return isinstance(value, str) and _word(value) in (*_THUMB_WORDS, *_BOOLEANS)


def _word(told: str) -> str:
    return told.strip().lower()


def rule_of(text: str) -> Rule:
    """A rule as the settings have it. Raises ValueError, with what it should be."""
    found, named = _RULE.fullmatch(text.strip()), _LABELS.fullmatch(text.strip())
    labels = tuple(map(_word, named[2].split(".."))) if named else ()
    if len(set(labels)) < len(labels) or (found and found[2] and float(found[2]) == float(found[3])):
        found = named = None
    if not (one := found or named):
        raise ValueError(f'{text!r} is none of "thumbs", "outcome", "outcome WORST..BEST"')
    kind: Literal["thumbs", "outcome"] = "thumbs" if one[1] == "thumbs" else "outcome"
    if found is None or found[2] is None:
        return Rule(kind, labels=labels)
    return Rule(kind, float(found[2]), float(found[3]))


class Verdicts:
    """Feedback by the rules of a team's metrics."""

    def __init__(self, metrics: Mapping[str, str] | None = None) -> None:
        self._rules = {name: rule_of(text) for name, text in (metrics or {}).items()}

    def has(self, metric: str) -> bool:
        """Whether the settings say what a metric is."""
        return metric in self._rules

    def of(self, item: Feedback) -> tuple[EventType, dict[str, Any]] | None:
        """The event that this feedback is; None for a metric that nobody said what it is, or for no value."""
        return self.meant(item.name, item.value)

    def meant(self, metric: str, told: float | bool | str) -> tuple[EventType, dict[str, Any]] | None:
        """What a value of a metric is, as `of` has it."""
        rule = self._rules.get(metric) or (_THUMB if metric in THUMBS else None)
        value = None if rule is None else rule.value(told)
        if rule is None or value is None:
            return None
        if rule.kind == "outcome":
            return "outcome", {"value": value, "name": metric}
        return ("thumbs", {"value": 1 if value > 0 else -1}) if value else None

    def resolved(self, event: Event) -> Event | None:
        """An event, of the type `feedback` as what it means; None for feedback that says nothing (yet)."""
        if event.type != "feedback":
            return event
        metric, value = event.data.get("name"), event.data.get("value")
        if not isinstance(metric, str) or not isinstance(value, bool | int | float | str):
            return None
        told = self.meant(metric, value)
        return None if told is None else msgspec.structs.replace(event, type=told[0], data=told[1])
