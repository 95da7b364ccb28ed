from __future__ import annotations

import io
import sys

import pytest

from rtrl_cli import output


def test_table_by_hand() -> None:
    assert output.table(("A", "LONG"), [("x", 1), ("yyy", 22)]) == "A    LONG\nx    1\nyyy  22"
    assert output.table(("A",), []) == ""


def test_pairs_and_sizes() -> None:
    assert output.pairs({"a": 1, "long": "x"}) == "a     1\nlong  x"
    assert [output.size(n) for n in (0, 999, 1000, 4_200_000, 3.2e9, 5e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "4.2 MB",
        "3.2 GB",
        "5.0 TB",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.colour(Terminal())
    assert not output.colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.colour(Terminal())


def test_plain_progress_is_a_line_at_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 5.0, 5.0, 6.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.make_progress(quiet=False) as progress:
        progress.start("reading", 10)
        progress.advance(2)  # at 1 s: too soon
        progress.advance(2, "half")  # at 5 s
        progress.advance(1)  # at 6 s: too soon
        progress.message("by the way")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "reading\nreading: 4 of 10 (half)\nby the way\n"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with output.make_progress(quiet=True) as progress:
        progress.start("reading", 10)
        progress.advance()
        progress.message("x")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = output.TerminalProgress()
    progress.message("before")
    progress.start("reading", 3)
    progress.advance(2)
    progress.message("[not markup]")
    progress.close()
    progress.close()
    assert "before\n" in terminal.getvalue()
    assert "[not markup]" in terminal.getvalue()
