"""Simulated engineers and their requests, drawn from a seed: the same seed gives the same people and days.

Training and held-out people come from disjoint seed spaces: every draw is seeded by a hash over the
split's name. A person has a temper and a domain that last; each request comes with a file of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from evals.population import words
from evals.population.files import draw_file
from evals.population.intents import Intent, Kind, draw_intent, solvable_line_by_line

Split = Literal["train", "heldout"]
SYSTEM = "Edit the code. Ask if unclear."
DAY_S = 86_400.0
FIRST_DAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z, a Monday: day 0


@dataclass(frozen=True)
class Person:
    """Somebody with a temper. Shares are probabilities, `pace_s` is a time in seconds.

    Attributes:
        attention: notices that an edit is wrong.
        fussiness: dislikes a right edit.
        talkativeness: writes anything at all after an answer.
        impatience: takes a needless question badly.
        pace_s: typical time between an answer and the reaction to it.
        activity: relative number of requests a day.
    """

    id: str
    split: Split
    domain: str
    attention: float
    fussiness: float
    talkativeness: float
    impatience: float
    pace_s: float
    activity: float


@dataclass(frozen=True)
class Case:
    """One request of one person on one file, with everything needed to judge the answer.

    Attributes:
        id: unique over splits, seeds, people, days; also seeds the reaction.
        at: when the request is typed, event time in epoch seconds, if the day goes as planned.
        session: number of the session within the day, from 0.
        intent: what is wanted, hidden from the model but for `intent.request`.
        path: file name.
        before: the file's text.
        text: the user's message: file and words.
        history: earlier messages of the conversation (after a question was answered).
    """

    id: str
    person: Person
    at: float
    session: int
    intent: Intent
    path: str
    before: str
    text: str
    history: tuple[dict[str, str], ...] = ()

    @property
    def kind(self) -> Kind:
        """What kind of wish it is."""
        return self.intent.kind


def seeded(*key: object) -> Random:
    """A random generator that depends on the key alone, on every machine."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


def person(split: Split, seed: int, index: int) -> Person:
    """The `index`-th person of a population."""
    name = f"{split}-{seed}-{index}"
    random = seeded("person", name)
    return Person(
        id=name,
        split=split,
        domain=random.choice(tuple(words.DOMAINS)),
        attention=random.uniform(0.80, 0.98),
        fussiness=random.uniform(0.0, 0.08),
        talkativeness=random.uniform(0.65, 0.98),
        impatience=random.uniform(0.3, 0.9),
        pace_s=random.uniform(20.0, 240.0),
        activity=random.lognormvariate(0.0, 0.5),
    )


def message(path: str, text: str, request: str) -> str:
    """What the user's editor sends: the open file, then the words."""
    return f"{path}\n{text}\n{request}"


def case(who: Person, day: int, index: int, at: float, session: int) -> Case:
    """The person's `index`-th request of a day."""
    name = f"{who.id}-{day}-{index}"
    random = seeded("case", name)
    while True:
        file = draw_file(who.domain, random)
        intent = draw_intent(file, who.domain, random)
        before = file.text()
        if not intent.goal or solvable_line_by_line(before, intent.goal):
            break
    text = message(file.path, before, intent.request)
    return Case(name, who, at, session, intent, file.path, before, text)


def _shares(people: Sequence[Person], requests: int) -> list[int]:
    """Requests per person, proportional to activity, summing to `requests` (largest remainder)."""
    total = sum(who.activity for who in people)
    exact = [requests * who.activity / total for who in people]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(people)), key=lambda i: (counts[i] - exact[i], i))
    for index in by_remainder[: requests - sum(counts)]:
        counts[index] += 1
    return counts


def _times(who: Person, day: int, count: int) -> list[tuple[float, int]]:
    """When each request is typed and in which session: sessions of one to four between 8 and 18 o'clock."""
    random = seeded("day", who.id, day)
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(min(random.randint(1, 4), count - sum(sizes)))
    starts = sorted(FIRST_DAY + day * DAY_S + random.uniform(8.0, 18.0) * 3600.0 for _ in sizes)
    times: list[tuple[float, int]] = []
    for session, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        at = start
        for _ in range(size):
            times.append((at, session))
            at += who.pace_s * random.uniform(1.0, 4.0)
    return times


def day_of(split: Split, seed: int, users: int, requests: int, day: int = 0) -> list[list[Case]]:
    """One day of a population: per person, their requests in order.

    Args:
        split: "train" or "heldout"; the two never share a person or a request.
        seed: which population of the split.
        users: number of people; the first `n` people of a seed are the same for every `users`.
        requests: requests of the day over all people.
        day: which day; every day has new files and new wishes.
    """
    people = [person(split, seed, index) for index in range(users)]
    return [
        [case(who, day, index, at, session) for index, (at, session) in enumerate(_times(who, day, count))]
        for who, count in zip(people, _shares(people, requests), strict=True)
    ]
