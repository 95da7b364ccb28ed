"""`--quiet` is understood by every command, and leaves nothing on stderr but errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rtrl_cli.commands import monitor
from rtrl_cli.lazy import TABLE, load
from rtrl_cli.main import run
from rtrl_cli.output import is_quiet
from stages.cycle.result import CycleResult
from stages.errors import StoreError
from stages.init import init_bare
from stages.spool.verify import SpoolReport


def commands() -> Iterator[tuple[str, ...]]:
    for name in TABLE:
        inner = getattr(load(name), "commands", None)
        yield from [(name, one) for one in inner] if inner else [(name,)]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_takes_it(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    assert "-q, --quiet" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("gc",), ("gc", "--yes"), ("keys", "add", "ann"), ("status",)])
def test_only_errors_are_left(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-w", str(init_bare(tmp_path / "ws").root))
    assert run([*words, *where, "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["show", "checkpoint@v9", *where, "-q"]) == 5
    assert "error: " in capsys.readouterr().err
    assert not is_quiet(), "it is said of one command"


def test_warnings_of_verify_and_of_a_cycles_monitor_are_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-w", str(init_bare(tmp_path / "ws").root))
    known = SpoolReport({"damaged": 0}, warnings=["known damage"])
    monkeypatch.setattr("stages.spool.verify.verify_spool", lambda *_, **__: known)
    told = CycleResult("c", "succeeded", warnings=["ping of http://127.0.0.1 failed"])
    monkeypatch.setattr("stages.cycle.run.run_cycle", lambda *_, **__: told)
    for command in ("verify", "cycle"):
        assert run([command, *where, "-q"]) == 0
        assert capsys.readouterr().err == ""
        assert run([command, *where]) == 0
        assert "warning: " in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [True, False])
def test_a_watch_of_monitors_keeps_what_goes_away_to_itself(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A look that failed, and a ping that nobody heard."""

    def away(*_: object) -> list[str]:
        raise StoreError("the store is away")

    def enough(_: float) -> None:
        raise KeyboardInterrupt

    root = str(init_bare(tmp_path / "ws").root)
    monkeypatch.setattr(monitor, "_look", away)
    monkeypatch.setattr(monitor.time, "sleep", enough)
    monkeypatch.setattr("stages.cycle.ping.ping", lambda *_: "ping failed")
    assert run(["monitor", "--watch", "-w", root, *(["-q"] if quiet else [])]) == 130
    assert capsys.readouterr().err.count("warning: ") == (0 if quiet else 2)
