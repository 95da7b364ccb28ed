"""`rtrl ab` before there is anything to look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtrl_cli.main import run
from stages.ab.look import Seen
from stages.errors import InconclusiveError
from tests.stages.serving.conftest import StubWorld


def test_watching_needs_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(StubWorld(tmp_path).workspace.root)
    assert run(["ab", "--watch", "-w", root]) == 5
    assert "no canary of line auto" in capsys.readouterr().err
    assert run(["ab", "--decide", "--watch", "--every", "300", "-w", root]) == 5
    assert run(["ab", "--watch", "--every", "0", "-w", root]) == 2
    assert run(["ab", "--holdback", "--watch", "-w", root]) == 5


def test_a_misspelt_line_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(StubWorld(tmp_path).workspace.root)
    assert run(["ab", "--line", "atuo", "-w", root]) == 5
    assert "nothing was ever deployed on line 'atuo'" in capsys.readouterr().err


def test_a_canary_that_somebody_else_promotes_leaves_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looks that hold print nothing under --json --decide: it was an empty stdout with status 0."""
    root = str(StubWorld(tmp_path).workspace.root)
    ends = iter([True])

    def holds(*_: object) -> None:
        raise InconclusiveError("hold", hint="wait")

    monkeypatch.setattr("rtrl_cli.commands.ab.time.sleep", lambda _: None)
    look = Seen("d_1", "hold", "too few users", {"reason": "too few users"})
    monkeypatch.setattr("rtrl_cli.commands.ab._opened", lambda *_: (None, None))
    monkeypatch.setattr("stages.ab.look.take_look", lambda *_, **__: look)
    monkeypatch.setattr("stages.ab.act.act", holds)
    monkeypatch.setattr("stages.ab.ended.ended", lambda *_: next(ends))
    assert run(["ab", "--decide", "--watch", "--every", "300", "--json", "-w", root]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["metrics"]["deployment"]) == ("ab", "d_1")
