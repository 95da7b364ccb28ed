"""Figures as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from cursorbench.redaction import Kind
from stages.report.figures import NONE_TOLD, UNKNOWN, Figure, Reading
from stages.wording import count, digits

POPULATIONS = {
    "agent": "Agent",
    "model": "Model",
    "repository": "Repository",
    "work": "Kind of work",
    "stratum": "Stratum",
    "arm": "Arm",
    "checkpoint": "Checkpoint",
}
FEW = 5  # episodes under which their share is not shown
_NEXT_TO_NOTHING = 1e-5  # a share's lower end below this is rounded down: 2e-07 % says no more than 0
HOW_TO_READ = (
    "Intervals are 95 %, clustered by user; there is none under five users, and no figure "
    "under five episodes, which n counts. In logs each session is a user "
    "unless collect was told who it was. A dash is a figure that cannot be told."
)


def number(value: float | None, figure: Figure) -> str:
    """`16.2 %`, `0.50x` or `-0.142`; a dash for None. What is not nothing is not told as nothing."""
    if value is None:
        return "-"
    if figure.unit == "share":
        return f"{_places(100 * value, 2 if 0 < value < 0.01 else 1)} %"
    return f"{_places(value, 2)}x" if figure.unit == "ratio" else _places(value, 3)


def _places(value: float, places: int) -> str:
    """With so many places; in digits that count where these show none, or of thousands."""
    told = f"{value + 0.0:.{places}f}"
    return told if not value or (float(told) and abs(value) < 1000) else digits(value, 2)


def many(n: int, noun: str) -> str:
    """`1 episode`, `1,351 episodes`."""
    return f"{n:,}{count(n, noun).removeprefix(str(n))}"


def told(reading: Reading) -> bool:
    """Whether there is a number to show: not the 0 of a source that may never tell, nor that of a handful."""
    return reading.value is not None and reading.n >= FEW and not _none_told(reading)


def _none_told(reading: Reading) -> bool:
    return reading.value == 0 and reading.note.startswith(NONE_TOLD)


def remark(reading: Reading) -> str:
    """The note, without what the value says already."""
    return reading.note if reading.value is not None else reading.note.partition("; ")[2]


def headline_value(reading: Reading, figure: Figure) -> str:
    """The value, or in a word why there is none."""
    if reading.value is None:
        return reading.note.split(";")[0].split(" (")[0].split(":")[0]
    if not told(reading):
        return "none told" if _none_told(reading) else f"too few ({reading.n})"
    return number(reading.value, figure)


def interval(reading: Reading, figure: Figure) -> str:
    """`11.3 to 21.2 %`; empty without one."""
    if (reading.low is None and reading.high is None) or not told(reading):
        return ""
    low, high = reading.low, number(reading.high, figure)
    if figure.unit != "share":
        return f"{number(low, figure)} to {high}"
    if low is not None and 0 < low < _NEXT_TO_NOTHING:
        low = 0.0
    return f"{number(low, figure).removesuffix(' %')} to {high}"


def cell(reading: Reading, figure: Figure) -> str:
    """For a narrow column: `16.2 % [11.3-21.2] n=579`."""
    shown = headline_value(reading, figure)
    if reading.value is not None and not told(reading) and not _none_told(reading):
        return shown  # says how few
    if reading.value is None:
        return shown if shown in ("not measured", UNKNOWN) else "-"
    ends = interval(reading, figure).removesuffix(" %").replace(" to ", "-")
    return f"{shown} [{ends}] n={reading.n}" if ends else f"{shown} n={reading.n}"


def masked(counts: Mapping[Kind, int]) -> str:
    """`3 home_path, 1 email`; "nothing" for none."""
    return ", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "nothing"


def when(at: int, *, time: bool = False) -> str:
    """A day in UTC, with the time where asked; "no time told" for 0."""
    if at <= 0:
        return "no time told"
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC" if time else "%Y-%m-%d")


def span(first: int, last: int) -> str:
    """From when to when."""
    return when(first) if when(first) == when(last) else f"{when(first)} to {when(last)}"
