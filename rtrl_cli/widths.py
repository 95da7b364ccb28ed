"""How wide a text is on a terminal: most letters take one column, those of East Asia and emoji two.

Not for: what is shown (`output.py`).
"""

from __future__ import annotations


def width(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def filled(text: str, columns: int) -> str:
    """The text with spaces behind it up to so many columns."""
    return text + " " * (columns - width(text))
