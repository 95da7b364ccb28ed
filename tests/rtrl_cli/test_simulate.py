"""`rtrl simulate`: numbers that no day has, and days that nobody has lived."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cursorbench.errors import DependencyDownError
from evals.population.simulate import Summary
from rtrl_cli.main import run
from stages.people_days import Place, lived, next_day


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """How many episodes the next day gives; the days that were lived are noted in tmp_path."""
    of = SimpleNamespace(episodes=3, days=[])

    async def simulate(traffic: SimpleNamespace, _: object) -> Summary:
        of.days.append(traffic.day)
        return Summary(3, of.episodes, 3 - of.episodes, {}, {}, None, None)

    monkeypatch.setattr("stages.people_days.place", lambda *_: Place("http://here", "key", tmp_path))
    monkeypatch.setattr("evals.population.simulate.simulate", simulate)
    return of


@pytest.mark.parametrize(
    "flags",
    [
        ("--day", "20261130"),  # a date; its people asked in the year 57492, and each request was refused
        ("--concurrency", "1" + "0" * 30),  # a task each, until memory ended
        ("--users", "1" + "0" * 30),
        ("--requests", "1" + "0" * 30),
    ],
)
def test_what_no_day_has_is_refused(
    flags: tuple[str, str], answered: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *flags]) == 2
    assert flags[0] in capsys.readouterr().err
    assert not answered.days


def test_a_day_on_which_nobody_was_answered_was_not_lived(answered: SimpleNamespace, tmp_path: Path) -> None:
    """It was noted, so that the next command went on with the day after it."""
    answered.episodes = 0
    assert run(["simulate"]) == 0
    assert next_day(tmp_path, "train", 0) == 0
    answered.episodes = 3
    assert run(["simulate"]) == 0
    assert (answered.days, next_day(tmp_path, "train", 0)) == ([0, 0], 1)


def test_a_service_that_stays_away_is_no_bug_on_an_older_python(
    answered: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before 3.11.4 what an `except*` raises is wrapped in a group."""

    async def simulate(*_: object) -> Summary:
        raise ExceptionGroup("", [DependencyDownError("nobody answers")])

    monkeypatch.setattr("evals.population.simulate.simulate", simulate)
    assert run(["simulate"]) == 13
    assert "nobody answers" in capsys.readouterr().err


def test_after_the_last_day_others_are_to_be_taken(
    answered: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a day that was named by mistake: each later command was refused by the gateway, with exit 0."""
    lived(tmp_path, "train", 0, 20261130)
    assert run(["simulate"]) == 2
    assert "--seed" in capsys.readouterr().err
    assert run(["simulate", "--seed", "1"]) == 0
    assert answered.days == [0]
