"""How far a command is, on stderr: a bar on a terminal, plain lines elsewhere, nothing with `--quiet`.

Not for: messages (`output.py`).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rtrl_cli.output import is_quiet, message, visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar
    from rich.progress import TaskID

    from stages.stage import Progress

PLAIN_EVERY_S = 5.0


@contextlib.contextmanager
def make_progress() -> Iterator[Progress]:
    """What tells a person how far a stage is; a terminal's lines are cleared at the end."""
    if is_quiet():
        from stages.progress import Silent

        yield Silent()
    elif sys.stderr.isatty():
        progress = TerminalProgress()
        try:
            yield progress
        finally:
            progress.close()
    else:
        yield PlainProgress()


class PlainProgress:
    """Plain lines: one at the start of a step, one every few seconds, one per message."""

    def __init__(self) -> None:
        self._what, self._total, self._done, self._next = "", 0, 0, 0.0

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a step of `total` units."""
        self._what, self._total, self._done = what, total or 0, 0
        self._next = time.monotonic() + PLAIN_EVERY_S
        message(what)

    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` units are done."""
        self._done += n
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_EVERY_S
        of = f" of {self._total}" if self._total else ""
        message(f"{self._what}: {self._done}{of}" + (f" ({note})" if note else ""))

    def message(self, text: str) -> None:
        """One line for the reader."""
        message(text)


class TerminalProgress:
    """A bar for the step that is going on. It is gone when the step is over."""

    def __init__(self) -> None:
        self._bar: RichBar | None = None
        self._task: TaskID | None = None

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a step of `total` units."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBar

        self.close()
        what_column = TextColumn("{task.description}", markup=False)  # a path may have brackets
        note_column = TextColumn("{task.fields[note]}", markup=False)
        columns = [what_column, BarColumn(), MofNCompleteColumn(), note_column, TimeElapsedColumn()]
        self._bar = RichBar(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(visible(what), total=total, note="")

    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` units are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=n, note=visible(note))

    def message(self, text: str) -> None:
        """One line for the reader, above the bar."""
        if self._bar is not None:
            self._bar.console.print(visible(text), markup=False, highlight=False)
        else:
            message(text)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
