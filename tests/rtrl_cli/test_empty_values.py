"""A flag whose variable is not set says nothing about what was meant: refused, never taken for left away."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtrl_cli.main import run
from stages.init import init_bare


@pytest.mark.parametrize(
    "words",
    [
        ("rollback", "--line", ""),
        ("rollback", "--to", ""),
        ("rollback", "--line=", "--dry-run"),
        ("cycle", "--line", "", "--dry-run"),
        ("lineage", "checkpoint@live", "--line", ""),
        ("train", "--explain", ""),
        ("distill", "--explain", ""),
        ("forget", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_refused(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rtrl rollback --line "$TEAM"` took everybody's weights away where TEAM was not set."""
    assert run([*words, "-w", str(init_bare(tmp_path / "ws").root)]) == 2
    assert "error: a name is empty" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("status",), ("rollback",)], ids=" ".join)
def test_an_empty_workspace_is_not_the_current_folder(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(init_bare(tmp_path / "ws").root)
    assert run([*words, "-w", ""]) == 2
    assert "error: a path is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "backup", "--to", ""),
        ("db", "backup", "--to", ""),
        ("demo", "--dir", ""),
        ("init", "--model", ""),
        ("train", "--import", "", "--parent", "checkpoint@v1"),
        ("export", "experience@latest", "--to", "trl", "--out", ""),
        ("simulate", "--key-file", ""),
        ("report", "--html", ""),
        ("monitor", "--plot", ""),
        ("bench", "show", ""),
        ("bench", "power", ""),
        ("bench", "import", "", "--out", "suite"),
        ("bench", "build", "--repo", "", "--out", "suite"),
        ("bench", "build", "--repo", ".", "--out", ""),
        ("bench", "run", "suite", "--base-url", "http://127.0.0.1:9", "--out", ""),
        ("bench", "export", "suite", "--out", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_folder(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`rtrl keys backup --to "$VAULT"` put the keys wherever cron stood, where VAULT was not set."""
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert "error: a path is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_made_by_a_command_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(init_bare(tmp_path / "ws").root)
    assert run(["distill", "-w", root]) == 5
    assert "hint: `rtrl collect` makes the first one" in capsys.readouterr().err
    assert run(["distill", "--input", "interactions@v1", "-w", root]) == 5
    assert "hint: `rtrl status` lists what there is" in capsys.readouterr().err
    assert run(["status", "-w", str(tmp_path)]) == 10
    assert "`rtrl init PATH --tiny`" in capsys.readouterr().err
