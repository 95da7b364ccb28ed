"""Groups and windows of time: every episode in one of them, or counted as not shown."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import numpy as np

from stages.report.episodes import CALLS, LABELS, SIGNALS, TOLD_CALLS, Episodes, Labels, told_times
from stages.report.figures import FIGURES
from stages.report.populations import MOST_GROUPS, by_calendar, population
from tests.stages.report.columns import episodes


def at(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


def test_the_largest_group_first_and_the_smallest_counted_together() -> None:
    rows = [{"agent": f"a{n}"} for n in range(MOST_GROUPS + 3)] + [{"agent": "a22"}] * 2 + [{}] * 4
    found = population("agent", episodes(*rows), FIGURES)
    assert [(g.label, g.episodes) for g in found.groups[:3]] == [("(not told)", 4), ("a22", 3), ("a0", 1)]
    assert (len(found.groups), found.rest, found.rest_episodes) == (MOST_GROUPS, 4, 4)


def test_a_name_is_redacted_cut_and_on_one_line() -> None:
    """A terminal's colours go whole; `[31m` stayed when only the escape before it was taken out."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    rows = [
        {"repository": name} for name in ("/home/ada/shop", f"x\n{secret}", "r" * 500, "a\u202eb\x1b[31m")
    ]
    labels = [g.label for g in population("repository", episodes(*rows), FIGURES).groups]
    assert "ada" not in labels[0]
    assert secret not in labels[1]
    assert "\n" not in labels[1]
    assert len(labels[2]) <= 61
    assert labels[3] == "ab"


def test_days_weeks_by_monday_and_months_and_what_has_no_time() -> None:
    def windows(*times: int) -> tuple[str, list[tuple[str, int]], int]:
        unit, groups, not_shown = by_calendar(episodes(*({"at": one} for one in times)), FIGURES)
        return unit, [(g.label, g.episodes) for g in groups], not_shown

    days = [at(2026, 3, 1, 23)] * 10 + [at(2026, 3, 31)] * 10 + [at(2026, 3, 1)]
    assert windows(*days, 0) == ("day", [("2026-03-01", 11), ("2026-03-31", 10)], 1)
    weeks = [at(2026, 3, 1)] * 10 + [at(2026, 3, 2)] * 10 + [at(2026, 4, 8)] * 10
    assert windows(*weeks) == ("week", [("2026-02-23", 10), ("2026-03-02", 10), ("2026-04-06", 10)], 0)
    assert windows(at(2020, 1, 31), at(2026, 3, 2)) == ("month", [("2020-01", 1), ("2026-03", 1)], 0)
    assert windows(0, 0) == ("day", [], 2)


def test_windows_of_a_handful_are_made_longer() -> None:
    a_day = [{"at": at(2026, 3, day)} for day in range(2, 30) for _ in range(3)]  # four whole weeks
    unit, groups, _ = by_calendar(episodes(*a_day), FIGURES)
    assert (unit, [g.episodes for g in groups]) == ("week", [21, 21, 21, 21])
    unit, groups, _ = by_calendar(episodes(*a_day[::3]), FIGURES)
    assert (unit, [g.episodes for g in groups]) == ("month", [28])


def test_a_time_that_no_calendar_knows_is_not_told() -> None:
    assert told_times([-5, 0, 1, 10**15, 2**62]).tolist() == [0, 0, 1, 0, 0]
    assert told_times([253_000_000_000_000]).tolist() == [0]  # year 9987: no plot has room behind it


def test_a_hundred_thousand_episodes_take_seconds() -> None:
    n, rng = 100_000, np.random.default_rng(0)
    values = {name: rng.random(n) for name in (*SIGNALS, "reward", CALLS, TOLD_CALLS)}
    labels = {
        name: Labels(rng.integers(0, 300, n), tuple(f"{name}{i}" for i in range(300))) for name in LABELS
    }
    times = at(2026, 1, 1) + rng.integers(0, 300 * 86_400_000, n)
    many = Episodes(rng.integers(0, 20_000, n), np.arange(n), times, values, labels, ())
    began = time.process_time()
    for name in ("agent", "model", "repository", "work"):
        population(name, many, FIGURES)
    unit, groups, not_shown = by_calendar(many, FIGURES)
    assert (unit, sum(g.episodes for g in groups), not_shown) == ("week", n, 0)
    assert time.process_time() - began < 10
