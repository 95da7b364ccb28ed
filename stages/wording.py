"""Numbers in sentences for people. Not for: anything a program reads."""

from __future__ import annotations


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`; the noun in the singular, its plural made by adding an s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
