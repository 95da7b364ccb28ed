"""A suite's figures, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cursorbench.errors import UsageError
from cursorbench.tasks import plot, profile
from cursorbench.tasks.profile import Spread
from cursorbench.tasks.suite import Suite
from rtrl_cli.main import run
from tests.cursorbench import suites


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return suites.make_suite(tmp_path_factory.mktemp("suite") / "words")


def test_the_example(made: Suite) -> None:
    seen = profile.of_suite(made)
    assert (seen.tasks, seen.clusters) == (3, {"words/counting": 2, "words/top": 1})
    assert seen.intents == {"feature": 1, "refactor": 1, "debug": 1, "investigate": 0}
    assert seen.lines == Spread(3, 10, 6, 10.5)  # 2, 10 and 11
    assert seen.files == Spread(3, 2, 1.5, 2)  # 1, 2, 2
    assert seen.several_files == pytest.approx(2 / 3)
    assert (seen.turns, seen.tokens) == (Spread(3, 2, 2, 2), Spread(0, None, None, None))
    assert (seen.first, seen.last) == ("2026-03-01", "2026-03-01")


def test_a_spread_of_what_is_known() -> None:
    assert profile.spread([None, 4]) == Spread(1, 4, None, None)
    assert profile.spread([1, 2, 3, 4, 5, None]) == Spread(5, 3, 2, 4)


@pytest.mark.parametrize("form", plot.FORMATS)
def test_pictures(made: Suite, tmp_path: Path, form: str) -> None:
    plot.draw(made, profile.of_suite(made), tmp_path / f"p{form}")
    start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".html": b"<!doctype html>", ".svg": b"<?xml"}[form]
    assert (tmp_path / f"p{form}").read_bytes().startswith(start)
    with pytest.raises(UsageError, match="is no picture"):
        plot.draw(made, profile.of_suite(made), tmp_path / "p.txt")


def test_the_command(made: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "show", str(made.path)]) == 0
    text = capsys.readouterr().out
    assert "CursorBench                 181            390" in text
    assert "SWE-bench and its variants  7 to 10        1,185 to 3,055" in text
    assert run(["bench", "show", str(made.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metrics"]["lines"]["median"] == 10
    assert document["metrics"]["published"][0]["characters"] == [390, 390]
    assert run(["bench", "show", str(made.path), "word-debug", "--plot", "one.png"]) == 2
    assert "--plot draws a suite's profile" in capsys.readouterr().err
    assert run(["bench", "show", str(made.path), "word-debug"]) == 0
    assert "2 must come to pass, 2 must stay so" in capsys.readouterr().out
    assert run(["bench", "show", str(made.path), "nothing"]) == 5
    assert run(["bench", "show", str(made.path / "tasks")]) == 5
