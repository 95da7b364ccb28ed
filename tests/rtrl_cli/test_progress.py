from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from rtrl_cli import output, progress
from rtrl_cli.demo_view import LiveView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_progress_is_a_line_at_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 5.0, 5.0, 6.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.make_progress() as bar:
        bar.start("reading", 10)
        bar.advance(2)  # at 1 s: too soon
        bar.advance(2, "half")  # at 5 s
        bar.advance(1)  # at 6 s: too soon
        bar.message("by the way")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "reading\nreading: 4 of 10 (half)\nby the way\n"


@pytest.mark.usefixtures("quietly")
def test_quiet_says_nothing_but_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.make_progress() as bar:
        bar.start("reading", 10)
        bar.advance()
        bar.message("x")
    output.message("y", kind="warning")
    assert capsys.readouterr() == ("", "")
    output.error_message("z", "do it", "r_1")
    assert capsys.readouterr().err == "error: z\nhint: do it\nrun: r_1\n"


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = progress.TerminalProgress()
    bar.message("before")
    bar.start("reading", 3)
    bar.advance(2, "5,000 records")
    bar.message("[not markup]")
    bar.close()
    bar.close()
    assert "before\n" in terminal.getvalue()
    assert "[not markup]" in terminal.getvalue()
    assert "5,000 records" in terminal.getvalue()


@pytest.mark.parametrize("view", [progress.TerminalProgress, lambda: LiveView(1)])
def test_what_a_bar_is_called_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, view: Callable[[], progress.TerminalProgress | LiveView]
) -> None:
    """A step is called by folders and suites, which may be called anything."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = view()
    bar.start("perplexity:/srv/x[/b]\x1b]0;mine\x07", 3)
    bar.advance()
    bar.close()
    assert "x[/b]" in terminal.getvalue()
    assert "\x1b]0;" not in terminal.getvalue()
