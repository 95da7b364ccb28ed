"""The points of a chart, and what is said of an alarm, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from evals.stats.charts.level import Level
from stages.monitor import charts
from stages.monitor.behaviours import BEHAVIOURS
from stages.monitor.charts import Point, Rules, chart, scaled, update
from stages.monitor.cycle import Cycle
from stages.monitor.history import Figure, History, Window
from stages.wording import digits
from tests.stages.monitor.test_divergence import windows as trending


def windows(
    name: str, values: Sequence[float | None], errors: Sequence[float] = (), mixed: Sequence[float] = ()
) -> list[Window]:
    """One for each value, at 10, 20, ...; None: the behaviour is not in it."""
    ses, moved = errors or [0.02] * len(values), mixed or [0.0] * len(values)
    return [
        Window(
            at=10 * n,
            checkpoint="c",
            episodes=400,
            users=9,
            figures={} if value is None else {name: Figure(value, value, value, se, 400.0, by)},
        )
        for n, (value, se, by) in enumerate(zip(values, ses, moved, strict=True), 1)
    ]


STEADY = [0.21, 0.2, 0.19, None, 0.2, 0.21, 0.2, 0.19, 0.2]


@pytest.mark.parametrize(
    ("name", "sides"),
    [("ask_rate", ("up",)), ("completion_accepted", ("down",)), ("comment_share", ("up", "down"))],
)
@pytest.mark.parametrize("end", [(0.3, 0.4, 0.5, 0.6), (0.15, 0.1, 0.05, 0.0)])
def test_sums_are_of_the_scores_from_the_warm_up_on(
    name: str, sides: tuple[charts.Side, ...], end: tuple[float, ...]
) -> None:
    """S = max(0, S + z - k) on each side that does harm, from when it left 0; anew after an alarm."""
    rules = Rules(warm_up=4)
    points = chart(name, windows(name, [*STEADY, *end]), rules)
    sums, since = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
    alarms = []
    level = Level(float(np.median([scaled(point.figure, BEHAVIOURS[name])[1] for point in points[:4]])))
    for point in points:
        value, error = scaled(point.figure, BEHAVIOURS[name])
        assert point.score == pytest.approx(level.score(value, error), nan_ok=True)
        called = None
        for side in sides if point.at > 40 else ():
            if sums[side] == 0:
                since[side] = point.at
            sums[side] = max(0.0, sums[side] + (1 if side == "up" else -1) * point.score - rules.k)
            called = side if sums[side] > rules.limit else called
        assert (point.sums, point.since, point.alarm) == (sums, since, called)
        level.tell(value, error, alarmed=bool(called), doubted=any(sums.values()))
        alarms += [called] * bool(called)
        sums = dict.fromkeys(sides, 0.0) if called else sums
    harm = "up" if end[0] > 0.2 else "down"
    assert set(alarms) == ({harm} & set(sides))


@pytest.mark.parametrize(("warm_up", "unit"), [(4, 0.025), (0, 0.01)])
def test_the_unit_is_of_the_first_errors(warm_up: int, unit: float) -> None:
    """So the second score is what a level of that unit says, which was told the first value."""
    found = windows("comment_share", [0.2, 0.3, 0.2, 0.2, 0.2], [0.01, 0.02, 0.03, 0.04, 0.5])
    first, second, *_ = chart("comment_share", found, Rules(warm_up=warm_up))
    level = Level(unit)
    level.tell(0.2, 0.01)
    assert math.isnan(first.score)
    assert second.score == pytest.approx(level.score(0.3, 0.02))
    assert second.low == pytest.approx(max(0.0, 0.2 - 1.96 * level.spread(0.02)))
    assert second.high == pytest.approx(0.2 + 1.96 * level.spread(0.02))


@pytest.mark.parametrize(
    ("name", "value", "most"), [("ask_rate", 0.5, 1), ("comment_share", 0.3, 1), ("turns", 9.0, 1e9)]
)
def test_what_is_usual_is_in_the_behaviours_own_unit(name: str, value: float, most: float) -> None:
    first, second = chart(name, windows(name, [value] * 2))
    assert (first.usual, first.low, first.high) == (None, None, None)
    assert second.usual == pytest.approx(value)
    assert second.low is not None
    assert second.high is not None
    assert 0 <= second.low < value < second.high <= most
    unsure = chart(name, windows(name, [value] * 2, [50.0] * 2))[1]  # it ends where nothing can be
    assert unsure.low == 0.0
    assert unsure.high is not None
    assert unsure.high == most if most == 1 else unsure.high > value


def test_older_values_are_of_the_requests_that_are_usual_now() -> None:
    """The mix of the second moved it by 0.05, that of the fourth by 0.1; the third has no such behaviour."""
    found = windows("comment_share", [0.2, 0.2, None, 0.3], mixed=[0.0, 0.05, 0.9, 0.1])
    points: list[Point] = chart("comment_share", found)
    assert [point.at for point in points] == [10, 20, 40]
    assert [point.figure.adjusted for point in points] == pytest.approx([0.35, 0.3, 0.3])


def test_scales_end_where_nothing_can_be() -> None:
    """Of 99.25 cases, 0.1 of them: (9.925 + .375) / 100; beyond 1, or below 0, as 1 and 0."""
    ask, turns = BEHAVIOURS["ask_rate"], BEHAVIOURS["turns"]
    value, error = scaled(Figure(0.1, 0.1, 0.1, 0.1, 99.25), ask)
    assert value == pytest.approx(np.arcsin(np.sqrt(0.103)))
    assert error == pytest.approx(0.1 / (2 * np.sqrt(0.103 * 0.897)))
    for beyond, of in ((1.3, 1.0), (-0.3, 0.0)):
        one, other = (scaled(Figure(0.5, 0.5, each, 0.1, 50.0), ask) for each in (beyond, of))
        assert one == other
    assert scaled(Figure(0.5, 0.5, -2.0, 0.3, 50.0), turns) == (0.0, 0.3)


@pytest.mark.parametrize(
    ("name", "end", "text"),
    [
        ("ask_rate", (0.7,), "ask_rate rose to 0.7 where"),
        ("ask_rate", (0.27, 0.33), "ask_rate rose to 0.33 where"),
        ("edit_persistence", (0.01,), "edit_persistence fell to 0.01 where"),
    ],
)
def test_an_alarm_in_words(name: str, end: tuple[float, ...], text: str) -> None:
    found = windows(name, [*STEADY, *end])
    alarm = charts._alarm(name, found, Rules(), "auto")
    assert alarm is not None
    last = chart(name, found)[-1]
    assert alarm.text.startswith(f"{text} {digits(last.usual or 0.0)} was to be expected (")
    assert alarm.text.endswith(f"over {len(end)} cycle{'s' * (len(end) > 1)}")
    assert (alarm.at, alarm.since) == (10 * len(found), 10 * len(found) - 10 * (len(end) - 1))
    assert (alarm.value, alarm.usual) == (end[-1], last.usual)
    assert (alarm.direction, alarm.score) == (last.alarm, round(last.sums[last.alarm or "up"], 3))
    assert alarm.limit == round(Rules().limit, 3)
    assert charts._alarm(name, [*found, *windows(name, [None])], Rules(), "auto") is None
    assert charts._alarm(name, found[:-1], Rules(), "auto") is None


def test_a_divergence_in_numbers_and_once() -> None:
    """Rewards rise by 5 errors a cycle and users tell nothing else; squares of five cycles: 10."""
    found = trending([0, 0.5, 1.0, 1.5, 2.0, 2.5], [1.0] * 6)
    alarm = charts._divergence(found[:5], Rules(), "auto")
    assert alarm is not None
    assert (alarm.behaviour, alarm.direction, alarm.at, alarm.since) == ("divergence", "up", 4, 0)
    assert (alarm.score, alarm.limit) == (round(5 * math.sqrt(10), 3), round(5 * math.sqrt(10 / 2), 3))
    assert (alarm.value, alarm.usual) == (2.0, 1.0)
    assert "over 5 cycles: by +5.00 and +0.00 standard errors a cycle (p " in alarm.text
    assert charts._divergence(found[:4], Rules(), "auto") is None  # in the warm-up
    assert charts._divergence(found, Rules(), "auto") is None  # told already
    assert charts._divergence(trending([1.0] * 6, [1.0] * 6), Rules(), "auto") is None
    assert charts._divergence(windows("turns", [1.0] * 6), Rules(), "auto") is None  # of no reward
    assert charts._divergence(found, Rules(warm_up=5), "auto") is not None  # it could not be, before


def test_what_other_requests_moved_most_is_named() -> None:
    figures = {
        "turns": Figure(3.0, 3.0, 3.1, 0.1, 9.0),
        "output_tokens": Figure(500.0, 300.0, 200.0, 9.0, 9.0),
        "ask_rate": Figure(0.5, 0.1, -0.1, 0.1, 9.0),
    }
    window = Window(at=1, checkpoint="c", episodes=9, users=3, figures=figures, cohort=0.25)
    assert charts._notes(window, Rules()) == []
    (told,) = charts._notes(window, Rules(cohort=0.2))
    assert told.startswith(
        "25% of the requests are of another kind than usual (output_tokens 500, 200 of the"
    )
    assert "; " not in told
    assert told.endswith("usual ones, ask_rate 0.5, 0 of the usual ones): no change of policy")


def test_the_newest_two_hundred_alarms_are_kept() -> None:
    alarm = charts._alarm("ask_rate", windows("ask_rate", [*STEADY, 0.7]), Rules(), "auto")
    assert alarm is not None
    history = History(alarms=[replace(alarm, id=f"a{n}") for n in range(205)])
    after = update(history, Cycle(at=1, checkpoint="c", columns={}, users=[], cells=[])).history
    assert after.alarms == history.alarms[5:]
