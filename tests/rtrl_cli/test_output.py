from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from rtrl_cli import output
from rtrl_cli.commands.status import ago
from rtrl_cli.progress import make_progress


def test_table_by_hand() -> None:
    assert output.table(("A", "LONG"), [("x", 1), ("yyy", 22)]) == "A    LONG\nx    1\nyyy  22"
    assert output.table(("A",), []) == ""


def test_columns_are_as_wide_as_they_look() -> None:
    """Letters of East Asia and emoji take two columns, an accent of its own none, what is escaped as many."""
    rows = [("日本", 1), ("👍🏽x", 2), ("e\u0301", 3), ("\x1b", 4)]
    assert output.table(("NAME", "N"), rows) == "NAME  N\n日本  1\n👍🏽x   2\ne\u0301     3\n\\x1b  4"
    assert output.pairs({"日本": 1, "abc": 2}) == "日本  1\nabc   2"


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


HOSTILE = "ok\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b1A\r\u202eback\ttab"
SHOWN = "ok\\x1b]0;owned\\x07\\x1b[2J\\x1b[8mhidden\\x9b1A\\r\\u202eback\ttab"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5.3, "5 s ahead"), (-7300, "2 h ahead"), (-0.4, "0 s ago"), (130, "2 min ago"), (200_000, "2 d ago")],
)
def test_when_something_was(seconds: float, told: str) -> None:
    """What was made before the clock was set back was made `0 s ago`."""
    assert ago((datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()) == told
    assert ago(None) == "-"


def test_what_models_wrote_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(False, {}, lambda: f"\x1b[1m{HOSTILE}\x1b[0m")
    output.message(HOSTILE, kind="warning")
    with make_progress() as progress:
        progress.message(HOSTILE)
    captured = capsys.readouterr()
    assert captured.out == f"\x1b[1m{SHOWN}\x1b[0m\n"
    assert captured.err == f"warning: {SHOWN}\n{SHOWN}\n"


def test_a_document_is_the_same_to_who_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"said": HOSTILE})
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x9b\u202e\x07\r")
    assert json.loads(printed) == {"said": HOSTILE}


def test_a_cell_is_one_line() -> None:
    assert output.table(("A", "B"), [("x\nsolved  9", "y")]) == "A            B\nx solved  9  y"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.colour(Terminal())
    assert not output.colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not output.colour(Terminal())
