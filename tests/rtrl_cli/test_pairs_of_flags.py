"""Flags that would be dropped in silence beside others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtrl_cli.main import run
from stages.init import init_bare


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("deploy --canary 0", "--canary"),
        ("deploy --override --reason x", "--override, --reason"),
        ("deploy --promote --dry-run", "--promote"),
        ("deploy --offline", "--offline"),
        ("rollback --reason x --offline", "--reason, --offline"),
    ],
)
def test_a_repeated_run_has_its_own_flags(
    words: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(init_bare(tmp_path / "ws").root)
    assert run([*words.split(), "--from-run", "deploy-1", "-w", root]) == 2
    assert f"repeats a run as it was; {named} would make it another one" in capsys.readouterr().err
    assert run([words.split(maxsplit=1)[0], "--from-run", "deploy-1", "-w", root]) == 5


def test_stop_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stopped what ran, said nothing of --detach, and exited 0."""
    assert run(["serve", "--detach", "--stop", "-w", str(init_bare(tmp_path / "ws").root)]) == 2
    assert "--stop starts nothing" in capsys.readouterr().err
