"""How `rtrl demo` shows itself while it runs: a growing table on a terminal, plain lines elsewhere.

Everything here goes to stderr; the result is the command's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtrl_cli.output import message, visible
from rtrl_cli.progress import PlainProgress

if TYPE_CHECKING:
    from rich.console import Group


class PlainView(PlainProgress):
    """Lines."""

    def __init__(self, cycles: int) -> None:
        super().__init__()
        self._cycles, self._begun = cycles, time.monotonic()

    def phase(self, cycle: int, name: str) -> None:
        """What begins now."""
        where = f"cycle {cycle} of {self._cycles}: " if cycle else ""
        message(f"[{time.monotonic() - self._begun:5.0f} s] {where}{name}")

    def cycle_done(self, row: Mapping[str, Any]) -> None:
        """One line of the table, with its header."""
        from stages.demo.table import HEADER, columns
        from stages.demo.table import row as cells

        for line in columns(HEADER, [cells(row)]):
            message("  " + line)

    def close(self) -> None:
        """Nothing to take away."""


class LiveView:
    """A table that grows by a line a cycle, and below it what is going on."""

    def __init__(self, cycles: int) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._cycles, self._begun = cycles, time.monotonic()
        self._rows: list[Mapping[str, Any]] = []
        self._phase = "starting"
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(
            get_renderable=self._picture,
            console=Console(file=sys.stderr),
            refresh_per_second=4,
            transient=True,
        )
        self._live.start()

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a step of `total` units."""
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(visible(what), total=total)

    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` units are done."""
        self._bar.advance(self._task, n)

    def message(self, text: str) -> None:
        """One line above the picture."""
        self._live.console.print(visible(text), markup=False, highlight=False)

    def phase(self, cycle: int, name: str) -> None:
        """What begins now."""
        self._phase = f"cycle {cycle} of {self._cycles}: {name}" if cycle else name

    def cycle_done(self, row: Mapping[str, Any]) -> None:
        """A line more."""
        self._rows.append(row)

    def close(self) -> None:
        """Take the picture away."""
        self._live.stop()

    def _picture(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        from stages.demo.table import HEADER
        from stages.demo.table import row as cells

        table = Table(*HEADER, box=None, header_style="bold", padding=(0, 2, 0, 0))
        for row in self._rows:
            table.add_row(*cells(row))
        elapsed = time.monotonic() - self._begun
        return Group(table, f"\n{self._phase}   ({elapsed:.0f} s)", self._bar)
