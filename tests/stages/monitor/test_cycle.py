"""Figures of a cycle by hand: errors by user, and what the mix of requests explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.monitor.behaviours import contentment, ratios
from stages.monitor.cycle import (
    CELLS,
    LEAN,
    Cycle,
    Floats,
    _unknown,
    composition,
    remembered,
    standard_error,
    window,
)
from stages.monitor.history import Reference


def cycle(edited: list[float], users: list[str], cells: list[str]) -> Cycle:
    return Cycle(at=1, checkpoint="c", columns={"edited": np.array(edited)}, users=users, cells=cells)


def test_an_error_by_user_by_hand() -> None:
    """Users with (1, 1), (0): mean 2/3, residuals by user 2/3, -2/3; se^2 = 2 * 2 (2/9)^2."""
    se = standard_error(np.array([1.0, 1.0, 0.0]), np.ones(3), np.array([0, 0, 1]))
    assert se == pytest.approx(np.sqrt(2 * ((2 / 9) ** 2 + (2 / 9) ** 2)))
    alone = standard_error(np.array([1.0, 0.0]), np.ones(2), np.array([5, 5]))
    assert alone == pytest.approx(np.sqrt(2 * (0.25**2 + 0.25**2)))
    three = standard_error(np.array([1.0, 0.0, 0.0]), np.ones(3), np.arange(3))
    assert three == pytest.approx(np.sqrt(3 / 2 * (2**2 + 1 + 1) / 9**2))
    unequal = standard_error(np.array([3.0, 0.0]), np.array([1.0, 2.0]), np.arange(2))
    assert unequal == pytest.approx(np.sqrt(2 * 2 * (2 / 3) ** 2))  # the ratio is 1, off by 2 of 3 each
    unknown = standard_error(np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0]), np.arange(3))
    assert unknown == pytest.approx(0.5)  # of two users: nothing is known of the third


def test_what_is_known_of_no_episode_is_no_figure() -> None:
    nan = float("nan")
    found = window(cycle([nan, nan], ["a", "a"], ["x", "x"]), Reference())
    assert (found.figures, found.users) == ({}, 1)


def test_the_first_cycle_is_what_it_is() -> None:
    found = window(cycle([1, 1, 0, 0], ["a", "b", "a", "b"], ["x", "x", "y", "y"]), Reference())
    figure = found.figures["edit_rate"]
    assert (figure.value, figure.expected, figure.adjusted, figure.weight) == (0.5, 0.5, 0.5, 4.0)
    assert (found.episodes, found.users, found.cohort, found.reward) == (4, 2, 0.0, None)
    unequal = window(cycle([1, 1, 0], ["a", "a", "b"], ["x"] * 3), Reference()).figures["edit_rate"]
    assert unequal.se == pytest.approx(2 * 2 / 9, rel=1e-6)  # as above


def test_means_of_the_reward_and_of_what_users_told_by_hand() -> None:
    """Of 2, 0 and one that is not known: off by 1/2 each, and half of a case more. Of one nothing is said."""
    nan = float("nan")
    given = {"reward": np.array([2.0, 0.0, nan]), "user": np.array([0.5, nan, nan])}
    found = window(replace(cycle([], ["a", "b", "c"], ["x"] * 3), columns={}, **given), Reference())
    assert found.reward == pytest.approx((1.0, np.hypot(1.0, 0.25)), rel=1e-6)
    assert (found.user, found.told) == (None, None)
    usual = Reference(episodes={"x": 9.0})
    nobody = window(Cycle(at=1, checkpoint="c", columns={}, users=[], cells=[]), usual)
    assert (nobody.episodes, nobody.users, nobody.cohort) == (0, 0, 0.0)


def test_a_history_of_little_is_one_and_kinds_without_the_behaviour_are_not() -> None:
    reference = Reference(
        episodes={"x": 1.0, "v": 9.0}, sums={"x": {"edit_rate": (1.0, 1.0)}, "v": {"turns": (9.0, 9.0)}}
    )
    figure = window(cycle([0.0], ["a"], ["x"]), reference).figures["edit_rate"]
    assert (figure.value, figure.expected, figure.adjusted) == (0.0, 1.0, 0.0)


def test_requests_count_by_what_is_divided_by() -> None:
    """Calls a turn: 2 usual in x, 0.5 in y, of 10 turns each. Now 1 turn of x with 4 calls, 3 of y with 0."""
    reference = Reference(
        episodes={"x": 10.0, "y": 10.0},
        sums={"x": {"calls_per_turn": (200.0, 100.0)}, "y": {"calls_per_turn": (50.0, 100.0)}},
    )
    columns = {"n_calls": np.array([4.0, 0.0]), "n_generations": np.array([1.0, 3.0])}
    now = Cycle(at=1, checkpoint="c", columns=columns, users=["a", "b"], cells=["x", "y"])
    figure = window(now, reference).figures["calls_per_turn"]
    x, y = ((each + 10 * LEAN * 1.25) / (100 + 10 * LEAN) for each in (200, 50))
    assert (figure.value, figure.expected) == pytest.approx((1.0, (x + 3 * y) / 4), rel=1e-6)
    assert figure.adjusted == pytest.approx(1.0 - ((x + 3 * y) / 4 - 1.25), rel=1e-6)
    off = (4 - x - (4 - x - 3 * y) / 4) / 4  # of either user, in the one direction or the other
    unknown = 2 * (0.25**2 + 0.25**2) / (10 + LEAN)
    least = 2 * (1 + 9) / 16  # one case more of 1.6 by Kish
    assert figure.se == pytest.approx(np.hypot(np.sqrt(2 * 2 * off**2 * (1 + unknown)), least), rel=1e-6)


def test_how_many_are_of_another_kind_by_hand() -> None:
    """10 of x where x and y are usual, 10 episodes each: 20 of 30, (2/9) (1/10 + 1/20) of either share."""
    reference = Reference(episodes={"x": 6.0, "y": 10.0}, rare={"x": 4.0})
    found = window(cycle([1.0] * 10, ["a"] * 10, ["x"] * 10), reference).cohort
    assert found == round(float(np.sqrt(0.5**2 - 2 / 9 * 0.15)), 4)


def test_what_the_mix_explains_is_taken_off() -> None:
    """History: 1000 of x all edited, 1000 of y none. Now x alone, 9 of 10 edited.

    Usual in x: (1000 + 20 * .5) / 1020; expected is that, overall .5; adjusted = .9 - (expected - .5).
    Half of what was usual is not there, half is too much; of 10 requests a standard error of either share is
    chance, which was taken for another kind, too (0.5 was pinned).
    """
    reference = Reference(
        episodes={"x": 1000.0, "y": 1000.0},
        sums={"x": {"edit_rate": (1000.0, 1000.0)}, "y": {"edit_rate": (0.0, 1000.0)}},
    )
    found = window(cycle([1] * 9 + [0], [f"u{n}" for n in range(10)], ["x"] * 10), reference)
    usual = (1000 + LEAN * 0.5) / (1000 + LEAN)
    figure = found.figures["edit_rate"]
    assert figure.expected == pytest.approx(usual)
    assert figure.adjusted == pytest.approx(0.9 - (usual - 0.5))
    assert figure.mixed == 0.0
    p, variance = 1010 / 2010, 1 / 10 + 1 / 2000
    assert found.cohort == pytest.approx(np.sqrt(0.5**2 - p * (1 - p) * variance), abs=1e-4)
    new = window(cycle([1, 0], ["a", "b"], ["z", "z"]), reference).figures["edit_rate"]
    assert (new.expected, new.adjusted) == (0.5, 0.5)


class Counted(np.ndarray):
    """Says how often it was added up."""

    sums = 0

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        Counted.sums += 1
        return super().sum(*args, **kwargs)


def test_the_requests_are_added_up_once_not_for_each_of_them() -> None:
    """It took the square of a window's episodes: of 100,000 of them a core's 5 s a behaviour."""
    reference = Reference(episodes={"x": 180.0}, sums={"x": {"edit_rate": (90.0, 100.0)}})
    under: Any = np.ones(64).view(Counted)
    assert _unknown("edit_rate", under, ["x"] * 64, reference) == 0.0
    assert Counted.sums == 1


def test_what_an_unusual_mix_does_not_know_widens_the_error() -> None:
    """x is half of what is usual and all of this cycle: (1/2)^2 of either cell's error comes on top."""
    reference = Reference(
        episodes={"x": 180.0, "y": 60.0},
        sums={"x": {"edit_rate": (90.0, 100.0)}, "y": {"edit_rate": (10.0, 100.0)}},
    )
    users = [f"u{n}" for n in range(10)]
    known = window(cycle([1] * 9 + [0], users, ["x"] * 5 + ["y"] * 5), reference).figures["edit_rate"]
    unknown = window(cycle([1] * 9 + [0], users, ["x"] * 10), reference).figures["edit_rate"]
    assert known.se == pytest.approx(standard_error(_residual(5), np.ones(10), np.arange(10)), rel=1e-6)
    more = 1 + 10 * 0.25 / (180 + LEAN) + 10 * 0.25 / (60 + LEAN)
    plain = standard_error(_residual(10), np.ones(10), np.arange(10))
    assert unknown.se == pytest.approx(plain * np.sqrt(more), rel=1e-6)


def test_kinds_that_are_new_or_gone_or_tell_nothing_of_it_are_known_by_hand() -> None:
    """Shares .6, 0, .4 where .7, .3, 0 are usual, of 10 episodes; z is new, and v says nothing of it."""
    reference = Reference(
        episodes={"x": 180.0, "y": 60.0, "v": 50.0},
        sums={"x": {"b": (90.0, 140.0)}, "y": {"b": (10.0, 60.0)}, "v": {}},
    )
    more = 10 * (0.1**2 / (180 + LEAN) + 0.3**2 / (60 + LEAN) + 0.4**2 / (0 + LEAN))
    assert _unknown("b", np.ones(10), ["x"] * 6 + ["z"] * 4, reference) == pytest.approx(more)


def _residual(of_x: int) -> Floats:
    """9 of 10 edited, the last not, less what is usual in x (the first so many) and y."""
    x, y = ((n + 0.5 * LEAN * 100 / 120) / (100 + LEAN * 100 / 120) for n in (90, 10))
    return np.array([1.0] * 9 + [0.0]) - np.array([x] * of_x + [y] * (10 - of_x)) + 0.5


def test_what_the_mix_moves_is_told_apart_by_hand() -> None:
    """x: 0.8 of 100, then 0.6 of 100; y: 0.2 of 100, then 0.4 of 300; z: not there, then 0.5 of 100.

    Shares 1/2, 1/2, 0 and 1/5, 3/5, 1/5: -0.3 * 0.7 + 0.1 * 0.3 + 0.2 * 0.5 = -0.08.
    """
    before = Reference(sums={"x": {"b": (80.0, 100.0)}, "y": {"b": (20.0, 100.0)}})
    after = Reference(sums={"x": {"b": (60.0, 100.0)}, "y": {"b": (120.0, 300.0)}, "z": {"b": (50.0, 100.0)}})
    assert composition("b", before, after) == pytest.approx(-0.08)
    assert composition("b", before, before) == 0.0
    assert composition("b", after, before) == pytest.approx(0.08)  # z is gone
    assert composition("b", Reference(), after) == composition("b", before, Reference()) == 0.0
    for each in (before, after):
        each.sums["w"] = {"b": (0.0, 0.0)}  # a kind that tells nothing of it
    assert composition("b", before, after) == pytest.approx(-0.08)
    one = Reference(sums={"x": {"b": (1.0, 1.0)}})
    assert composition("b", one, Reference(sums=one.sums | {"y": {"b": (0.0, 1.0)}})) == -0.5
    assert composition("other", before, after) == 0.0


def test_a_window_without_the_behaviour_passes_on_what_the_mix_moved() -> None:
    """x all edited, y none: from half and half to x alone, twice, the first time with nothing known."""
    reference = Reference(
        episodes={"x": 100.0, "y": 100.0},
        sums={"x": {"edit_rate": (100.0, 100.0)}, "y": {"edit_rate": (0.0, 100.0)}},
    )
    users = [f"u{n}" for n in range(100)]
    first = remembered(cycle([1.0] * 100, users, ["x"] * 100), reference)
    assert first.mixed["edit_rate"] == pytest.approx(185 / 270 - 1 / 2, rel=1e-6)
    nothing = remembered(Cycle(at=2, checkpoint="c", columns={}, users=users, cells=["x"] * 100), first)
    assert nothing.mixed == first.mixed
    assert remembered(cycle([np.nan] * 100, users, ["x"] * 100), first).mixed == first.mixed
    assert remembered(Cycle(at=2, checkpoint="c", columns={}, users=[], cells=[]), reference).mixed == {
        "edit_rate": 0.0
    }
    none_edited = remembered(cycle([0.0] * 100, users, ["x"] * 100), first).mixed["edit_rate"]
    mean = (1 + 157.25 / 257.25) / 2  # of what is usual in x, before and after: told, so nothing is passed on
    assert none_edited == pytest.approx((257.25 / 329.5 - 185 / 270) * mean, rel=1e-5)
    assert window(cycle([1.0], ["u"], ["x"]), nothing).figures["edit_rate"].mixed == first.mixed["edit_rate"]
    second = remembered(cycle([1.0] * 100, users, ["x"] * 100), first)
    assert second.mixed["edit_rate"] == pytest.approx(257.25 / 329.5 - 185 / 270, rel=1e-5)


def test_the_reference_fades_and_adds() -> None:
    first = remembered(cycle([1, 0, 0], ["a", "b", "a"], ["x", "x", "y"]), Reference())
    second = remembered(cycle([1, 1], ["a", "b"], ["x", "x"]), first)
    assert second.episodes == {"x": 3.7, "y": 0.85}
    assert second.sums == {"x": {"edit_rate": (2.85, 3.7)}, "y": {"edit_rate": (0.0, 0.85)}}


def test_ratios_leave_out_what_is_not_known() -> None:
    nan = np.nan
    found = ratios(
        {
            "invalid_tool_calls": np.array([0.0, 1.0, nan]),
            "n_calls": np.array([1.0, 3.0, 2.0]),
            "n_generations": np.array([1.0, 2.0, nan]),
        }
    )
    assert [column.tolist() for column in found["invalid_calls"]] == [[0, 1, 0], [1, 1, 0]]
    assert [column.tolist() for column in found["calls_per_turn"]] == [[1, 3, 0], [1, 2, 0]]
    assert "edit_rate" not in found


def test_contentment_turns_every_signal_so_that_up_is_good() -> None:
    nan = np.nan
    columns = {
        "edit_persistence": np.array([1.0, nan, nan]),
        "dissatisfied_followup": np.array([0.5, 0.25, nan]),
    }
    found = contentment(columns, {"edit_persistence": 1, "dissatisfied_followup": -1})
    assert found[:2].tolist() == [0.25, -0.25]
    assert np.isnan(found[2])


def test_a_few_cases_that_are_alike_are_not_exact() -> None:
    """One function of 40 lines: as long again, or none. Four of them: a quarter of that. Hand-computed."""
    lines, functions = np.zeros(30), np.zeros(30)
    for cases in (1, 4):
        lines[:cases], functions[:cases] = 40.0, 1.0
        told = window(
            Cycle(
                at=0,
                checkpoint="c",
                columns={
                    "function_lines": lines,
                    "functions": functions,
                    "comment_chars": np.zeros(30),
                    "written_chars": functions * 100,
                },
                users=[f"u{n % 3}" for n in range(30)],
                cells=["k"] * 30,
            ),
            Reference(),
        ).figures
        assert told["function_length"].se == pytest.approx(41 / cases)
        assert told["comment_share"].se == pytest.approx(0.5 / cases)


def mixed(random: np.random.Generator, shares: Floats, episodes: int) -> Cycle:
    kinds = random.choice(len(shares), episodes, p=shares)
    return cycle([1.0] * episodes, [f"u{n % 60}" for n in range(episodes)], [f"k{n}" for n in kinds])


def cohorts(shares: list[Floats], episodes: int) -> list[float]:
    """Of cycles with these mixes of requests, one after the other."""
    random, reference, found = np.random.default_rng(0), Reference(), []
    for each in shares:
        now = mixed(random, each, episodes)
        found.append(window(now, reference).cohort)
        reference = remembered(now, reference)
    return found


@pytest.mark.parametrize(
    ("cells", "episodes", "steep"), [(48, 100, 0.0), (40, 100, 1.0), (150, 5000, 0.5), (300, 5000, 1.0)]
)
def test_a_line_that_never_changes_has_no_other_requests(cells: int, episodes: int, steep: float) -> None:
    """30 to 50 % "of another kind" was said in each cycle: by chance, and of what `CELLS` leaves out."""
    usual = 1 / np.arange(1, cells + 1) ** steep
    usual /= usual.sum()
    assert max(cohorts([usual] * 20, episodes)[4:]) < 0.1
    other = np.append(usual / 2, 0.5)
    assert cohorts([np.append(usual, 0.0)] * 11 + [other], episodes)[11] == pytest.approx(0.5, abs=0.12)


def test_what_is_too_rare_for_sums_is_counted_for_some_time() -> None:
    """c is the rarest of 49: without sums. It fades; and is too little to count after 14 cycles more."""
    names = [f"a{n}" for n in range(CELLS)] * 2 + ["c"]
    one = remembered(cycle([1.0] * len(names), ["u"] * len(names), names), Reference())
    assert (len(one.episodes), one.rare) == (CELLS, {"c": 1.0})
    assert "c" not in one.sums
    again = cycle([1.0] * len(names[:-1]), ["u"] * (len(names) - 1), names[:-1])
    after = one
    for _ in range(14):
        after = remembered(again, after)
    assert after.rare == {"c": pytest.approx(0.85**14, abs=0.01)}
    assert remembered(again, after).rare == {}
    twice = remembered(cycle([1.0] * 3, ["u"] * 3, ["c"] * 3), one)  # now it is among the most frequent
    assert (twice.episodes["c"], twice.rare["c"]) == (3.0, 0.85)
