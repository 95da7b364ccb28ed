"""Numbers beyond all that a bench command can do: refused where they are named, before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtrl_cli.main import run

HUGE = "1" + "0" * 30


@pytest.mark.parametrize(
    "words",
    [
        ("power", "--tasks", HUGE),  # two of these ended as a bug
        ("power", "--tasks", "20", "--attempts", HUGE),
        ("power", "--tasks", "20", "--worlds", HUGE),  # and one never
        ("build", "there", "--out", "suite", "--timeout", "inf"),
        ("run", "there", "--base-url", "http://x/v1", "--model", "m", "--attempts", HUGE),
        ("run", "there", "--base-url", "http://x/v1", "--model", "m", "--temperature", "inf"),
    ],
    ids=" ".join,
)
def test_they_are_refused(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    found = [str(tmp_path / word) if word in ("there", "suite") else word for word in words]
    assert run(["bench", *found]) == 2
    assert f"Invalid value for '{words[-2]}'" in capsys.readouterr().err
    assert not (tmp_path / "suite").exists()
