"""What a suite is like, beside what is published of others: the mix of its work, prompts, changes, dates.

A benchmark whose tasks are unlike the team's work measures something else; so each suite says what it is.
Not here: how models do on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, get_args

from cursorbench.tasks.suite import Suite
from cursorbench.tasks.task import Intent, Task


@dataclass(frozen=True)
class Published:
    """Medians that others published of theirs; a range where they are several suites.

    Attributes:
        lines: lines changed, lowest and highest median.
        characters: of the prompt.
        source: where it is said.
    """

    name: str
    lines: tuple[int, int]
    characters: tuple[int, int]
    source: str


_REPORT = "Cursor Research, Composer 2 Technical Report, March 2026"
PUBLISHED = (
    Published("CursorBench", (181, 181), (390, 390), _REPORT),
    Published("SWE-bench and its variants", (7, 10), (1185, 3055), _REPORT),
)


@dataclass(frozen=True)
class Spread:
    """A quantity over tasks. `known` of them have it; quartiles are None below two."""

    known: int
    median: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Profile:
    """A suite in figures.

    Attributes:
        clusters, repositories, intents, splits, prompt_sources, environments: tasks by value.
        lines, characters, files, tests, turns, tokens: spreads; turns and tokens of the tasks that came
            from a session.
        several_files: share of tasks whose change touches more than one file.
        first, last: ISO days between which the kept changes were made.
    """

    name: str
    digest: str
    tasks: int
    clusters: dict[str, int]
    repositories: dict[str, int]
    intents: dict[str, int]
    splits: dict[str, int]
    prompt_sources: dict[str, int]
    environments: dict[str, int]
    lines: Spread
    characters: Spread
    files: Spread
    tests: Spread
    turns: Spread
    tokens: Spread
    several_files: float
    first: str
    last: str

    def document(self) -> dict[str, Any]:
        """As JSON, with the published figures beside it."""
        return asdict(self) | {"published": [asdict(one) for one in PUBLISHED]}


def of_suite(suite: Suite) -> Profile:
    """The profile of a suite, which has at least one task."""
    tasks = suite.tasks
    fields = [task.fields for task in tasks]
    days = sorted(one.created_at[:10] for one in fields)
    intents = Counter(one.intent for one in fields)
    return Profile(
        name=suite.fields.name,
        digest=suite.digest,
        tasks=len(tasks),
        clusters=_counted(one.cluster for one in fields),
        repositories=_counted(one.repo for one in fields),
        intents={intent: intents[intent] for intent in get_args(Intent)},
        splits=_counted(one.split for one in fields),
        prompt_sources=_counted(one.prompt_source for one in fields),
        environments=_counted(task.environment.kind for task in tasks),
        lines=spread(one.lines_changed for one in fields),
        characters=spread(one.prompt_chars for one in fields),
        files=spread(one.files_changed for one in fields),
        tests=spread(_tests(tasks)),
        turns=spread(one.reference_turns for one in fields),
        tokens=spread(one.reference_tokens for one in fields),
        several_files=sum((one.files_changed or 0) > 1 for one in fields) / len(fields),
        first=days[0],
        last=days[-1],
    )


def _tests(tasks: Sequence[Task]) -> Iterable[int | None]:
    return (len(one.tests.fail_to_pass) or None for one in tasks)


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def spread(values: Iterable[int | None]) -> Spread:
    """Median and quartiles (inclusive) of what is known."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Spread(len(known), known[0] if known else None, None, None)
    low, _, high = quantiles(known, n=4, method="inclusive")
    return Spread(len(known), median(known), low, high)
