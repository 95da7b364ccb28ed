"""`rtrl ab` before there is anything to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtrl_cli.main import run
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
