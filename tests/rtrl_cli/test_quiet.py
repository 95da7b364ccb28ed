"""`--quiet` is understood by every command, and leaves nothing on stderr but errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rtrl_cli.lazy import TABLE, load
from rtrl_cli.main import run
from stages.init import init_bare


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
