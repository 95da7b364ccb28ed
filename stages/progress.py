"""A `Progress` for whoever wants none: tests, libraries, `--quiet`. The visible ones are the CLI's."""

from __future__ import annotations


class Silent:
    """Says nothing."""

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a step of `total` units."""

    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` units are done."""

    def message(self, text: str) -> None:
        """One line for the reader."""
