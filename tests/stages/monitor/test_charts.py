"""Histories of a made-up line: clean ones stay quiet, what moves is called, and rightly named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from stages.monitor import charts
from stages.monitor.behaviours import BEHAVIOURS
from stages.monitor.charts import CHARTS, Rules, scaled, update
from stages.monitor.history import Alarm, Figure, History, Window
from tests.stages.monitor.cycles import made


def lived(
    seed: int, cycles: int, moves: Any = None, rules: Rules | None = None
) -> tuple[History, list[list[Alarm]]]:
    """A history of so many cycles; `moves` gives what is moved in each."""
    random, history, alarms = np.random.default_rng(seed), History(), []
    for at in range(cycles):
        found = update(history, made(at, random, **(moves(at) if moves else {})), rules)
        history = found.history
        alarms.append(found.alarms)
    return history, alarms


def test_a_clean_line_stays_quiet() -> None:
    """Pinned from a larger run (docs/monitor.md): 4 lines of 14 cycles, none alarms."""
    assert sum(bool(each) for seed in range(4) for each in lived(seed, 14)[1]) == 0


@pytest.mark.parametrize(
    ("move", "amount", "behaviour", "direction"),
    [
        ("clarified", 0.5, "ask_rate", "up"),
        ("invalid", 0.7, "invalid_calls", "up"),
        ("terminal_only", 1.5, "terminal_only", "up"),
        ("tokens", 0.15, "output_tokens", "up"),
        ("tokens", 4.0, "output_tokens", "up"),  # to thousands, which were told as 3.2e+03
        ("tokens", -0.15, "output_tokens", "down"),
        ("comments", 0.05, "comment_share", "up"),
        ("edited", -0.5, "edit_rate", "down"),
    ],
)
def test_what_moves_is_called_within_three_cycles(
    move: str, amount: float, behaviour: str, direction: str
) -> None:
    """It grows by `amount` a cycle from the eleventh on."""
    _, alarms = lived(11, 13, lambda at: {move: amount * max(0, at - 9)})
    assert not any(alarms[:10])
    first = next(each for each in alarms[10:] if each)
    assert [(a.behaviour, a.direction) for a in first] == [(behaviour, direction)]
    assert BEHAVIOURS[behaviour].what in first[0].text
    assert "e+" not in first[0].text
    assert first[0].score > first[0].limit
    assert first[0].since <= first[0].at


@pytest.mark.parametrize("seed", range(3))
def test_what_was_getting_shorter_and_grows_is_called(seed: int) -> None:
    """Tokens fall by less and less, as under a good reward, and then grow by a tenth a cycle."""

    def moves(at: int) -> dict[str, float]:
        return {"tokens": -0.4 * (1 - 0.8 ** min(at, 8)) + 0.1 * max(0, at - 8)}

    _, alarms = lived(20 + seed, 12, moves)
    assert not any(alarms[:9])
    assert "output_tokens" in {alarm.behaviour for each in alarms[9:] for alarm in each}


def test_what_gets_better_is_no_alarm() -> None:
    """Broken calls and questions fall, cycle by cycle, from the first on."""
    _, alarms = lived(5, 14, lambda at: {"invalid": -0.3 * at, "clarified": -0.3 * at})
    assert not any(alarms)


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_line_that_always_moved_may_move_on(seed: int) -> None:
    """Tokens fall from the start, by a tenth at first, then less: a known thing. A rise by a half is not."""

    def falling(at: int) -> float:
        return -(1 - 0.9**at)

    def moves(at: int) -> dict[str, float]:
        return {"tokens": falling(at) if at < 11 else falling(10) + 0.5}

    _, alarms = lived(seed, 12, moves)
    assert not any(alarms[:11])
    assert [(alarm.behaviour, alarm.direction) for alarm in alarms[11]] == [("output_tokens", "up")]


def test_a_line_that_falls_at_one_pace_may_move_on_at_a_lower_rate() -> None:
    """Tokens fall by a tenth a cycle for twelve: longer than a direction is held to last. One line of many
    (docs/lab-notes.md), at 0.01: of the first 24 half call that, the seventh among them since the unit is
    that of the first windows (12 before, 13 since)."""

    def alarms(moves: Any) -> list[list[Alarm]]:
        return lived(2, 13, moves, Rules(alarms=0.01))[1]

    assert not any(alarms(lambda at: {"tokens": -0.1 * at}))
    risen = alarms(lambda at: {"tokens": -0.1 * at if at < 11 else -1.0 + 0.5 * (at - 10)})
    assert [(a.behaviour, a.direction) for a in [*risen[11], *risen[12]]] == [("output_tokens", "up")]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 8])
def test_other_requests_are_no_other_policy(seed: int) -> None:
    """From the eleventh cycle on nearly all requests are of the kind that is edited least and is longest."""
    changed = {"mix": [0.02, 0.02, 0.02, 0.94]}
    random, history = np.random.default_rng(seed), History()
    for at in range(13):
        found = update(history, made(at, random, **(changed if at > 9 else {})))
        history = found.history
        assert not found.alarms
        assert bool(found.notes) == (at > 9)
    figure = history.windows[10].figures["edit_rate"]
    before = history.windows[9].figures["edit_rate"]
    assert figure.value < before.value - 0.1  # raw
    assert abs(figure.adjusted - before.adjusted) < 0.08  # reweighted
    assert "of the requests are of another kind than usual" in found.notes[0]


def test_reward_that_rises_alone_is_called() -> None:
    _, alarms = lived(9, 12, lambda at: {"reward": 0.12 * max(0, at - 5)})
    named = [a.behaviour for each in alarms for a in each]
    assert named == ["divergence"]
    _, alarms = lived(9, 12, lambda at: {"reward": 0.12 * max(0, at - 5), "content": 0.12 * max(0, at - 5)})
    assert not any(alarms)


def test_reward_that_rises_alone_is_called_where_no_two_users_tell_otherwise() -> None:
    """Nobody ever refuses an edit: what users tell has no spread of its own, and it does not rise."""
    random, history, named = np.random.default_rng(9), History(), []
    for at in range(12):
        cycle = made(at, random, reward=0.12 * max(0, at - 5))
        alike = np.zeros(len(cycle.users))
        found = update(history, replace(cycle, user=alike, told=alike))
        history = found.history
        named += [alarm.behaviour for alarm in found.alarms]
    assert named == [charts.DIVERGENCE]


def test_the_state_comes_back_as_it_was_and_the_past_is_not_changed() -> None:
    history, _ = lived(2, 6)
    state = msgspec.json.decode(msgspec.json.encode(history.to_state()))
    again = History.of_state(state)
    assert again == history
    found = update(again, made(6, np.random.default_rng(3)))
    assert len(again.windows) == 6
    assert len(found.history.windows) == 7
    short = update(history, made(6, np.random.default_rng(3)), Rules(windows=3)).history
    assert (len(short.windows), short.forgotten) == (3, 4)


def test_an_alarm_is_of_the_episodes_that_were_seen_and_of_their_line() -> None:
    """The same distilled again gives the same; with later ones among them, or on another line, another.

    An acknowledgement of a small rise was one of whatever the next distill found.
    """
    ids = []
    for at, line in ((99, "auto"), (99, "auto"), (100, "auto"), (99, "acme")):
        random, history = np.random.default_rng(3), History()
        for earlier in range(11):
            history = update(history, made(earlier, random)).history
        cycle = made(at, random, clarified=2.0)
        (alarm,) = update(history, replace(cycle, checkpoint="c", line=line)).alarms
        ids.append(alarm.id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_a_divergence_that_begins_in_the_warm_up_is_told_after_it() -> None:
    """It was taken for told already, and never was."""
    random, history = np.random.default_rng(9), History()
    told = []
    for at in range(14):
        found = update(history, made(at, random, reward=0.35 * min(at, 9)))
        history = found.history
        told += [(at, alarm.behaviour) for alarm in found.alarms]
    assert told == [(4, charts.DIVERGENCE)]  # the first after the warm-up of four


def test_what_is_not_told_has_no_chart() -> None:
    random, history = np.random.default_rng(1), History()
    for at in range(6):
        cycle = made(at, random)
        del cycle.columns["comment_chars"]  # type: ignore[attr-defined]
        history = update(history, cycle).history
    assert "comment_share" not in history.windows[-1].figures
    assert charts.chart("comment_share", history.windows) == []
    assert len(charts.chart("edit_rate", history.windows)) == 6


def test_the_rate_is_divided_among_all_charts() -> None:
    assert CHARTS == 28
    assert Rules(alarms=0.028).rate == pytest.approx(0.001)


def test_scales_by_hand() -> None:
    """Share 0 of 99.25: (0 + .375) / 100 = .00375; its se is the binomial's, 1 / (2 sqrt n)."""
    share, error = scaled(Figure(0.0, 0.0, 0.0, 0.0, 99.25), BEHAVIOURS["ask_rate"])
    assert share == pytest.approx(np.arcsin(np.sqrt(0.00375)))
    assert error == pytest.approx(0.5 / np.sqrt(99.25))
    clustered, error = scaled(Figure(0.5, 0.5, 0.5, 0.1, 100.0), BEHAVIOURS["ask_rate"])
    assert (clustered, error) == pytest.approx((np.pi / 4, 0.1))
    assert scaled(Figure(9.0, 9.0, 9.0, 2.0, 5.0), BEHAVIOURS["output_tokens"]) == pytest.approx(
        (np.log(10), 0.2)
    )
    assert scaled(Figure(0.2, 0.2, 0.3, 0.0, 5.0), BEHAVIOURS["comment_share"]) == (0.3, 0.005)


def test_fewer_windows_than_the_warm_up_never_alarm() -> None:
    """So `distill.history` may not be under `distill.warm_up` (`stages/distill/config.py`)."""

    def last(windows: int) -> list[str]:
        random, rules, history = np.random.default_rng(3), Rules(warm_up=4, windows=windows), History()
        for at in range(10):
            found = update(history, made(at, random, **({"clarified": 4.0} if at == 9 else {})), rules)
            history = found.history
        return [alarm.behaviour for alarm in found.alarms]

    assert (last(3), last(4)) == ([], ["ask_rate"])


def test_what_was_called_stays_on_the_chart_and_nothing_else_comes_to_it() -> None:
    """Use grows by 15 % a cycle, and what is measured by more is measured better: the chart of today has the
    alarms that were raised, although the smallest errors came last."""
    raised = 0
    for seed in range(12):
        random, windows, called = np.random.default_rng(seed), list[Window](), list[int]()
        for n in range(26):
            episodes = int(100 * 1.15**n)
            share = random.binomial(episodes, 0.36 if 10 <= n < 13 else 0.2) / episodes
            error = float(np.sqrt(share * (1 - share) / episodes))
            figure = Figure(share, share, share, error, float(episodes), 0.0)
            windows.append(
                Window(at=n, checkpoint="c", episodes=episodes, users=10, figures={"silent": figure})
            )
            if charts.chart("silent", windows)[-1].alarm:
                called.append(n)
        assert [point.at for point in charts.chart("silent", windows) if point.alarm] == called
        raised += len(called)
    assert raised >= 6
