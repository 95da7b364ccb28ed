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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gc --pin checkpoint@v1 --reason x --yes", "--pin and --unpin remove nothing, and --yes does"),
        ("gc --unpin checkpoint@v1 --yes --keep-log-days 9", "--yes, --keep-log-days does"),
        ("gc --unpin checkpoint@v1 --retired old", "--retired does"),
        ("gc --yes --reason x", "--reason is why something is pinned"),
        ("monitor --every 300", "--every is of --watch"),
        ("ab --decide --every 300", "--every is of --watch"),
        ("ab --holdback --every 300", "--every is of --watch"),
        ("verify --full --depth present", "--full and --depth present exclude each other"),
        ("verify --full --seed 3", "--seed draws a sample; --depth full takes none"),
        ("verify --depth present --seed 3", "--seed draws a sample; --depth present takes none"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rtrl gc --unpin REF --yes` ended with 0 and had removed nothing."""
    assert run([*words.split(), "-w", str(init_bare(tmp_path / "ws").root)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-w", "--workspace"])
def test_init_says_where_it_takes_the_folder(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All other commands take -w; here it was "No such option", and no more."""
    folder = tmp_path / "a b"
    assert run(["init", flag, str(folder), "--tiny"]) == 2
    told = capsys.readouterr().err
    assert "takes the workspace's folder as PATH" in told
    assert f"rtrl init '{folder}' ..." in told
    assert not folder.exists()
