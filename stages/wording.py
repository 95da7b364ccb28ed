"""Numbers in sentences for people. Not for: anything a program reads."""

from __future__ import annotations


def count(n: int, noun: str) -> str:
    """`1 file`, `2 files`; the noun in the singular, its plural made by adding an s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def digits(value: float, least: int = 3) -> str:
    """`0.0312`, `31.2`, `1234`: as many digits that count, and all of those before the point."""
    return f"{value:.{least}g}" if abs(value) < 10**least - 0.5 else f"{value:.0f}"


def exit_status(code: int) -> str:
    """`3`, `-15`; of a SIGKILL that nobody here sent also who mostly sends it: the kernel, for memory."""
    return f"{code} (killed: out of memory?)" if code == -9 else str(code)


def percent(share: float) -> str:
    """`10%`, `0.5%`, `99.9%`: a share that somebody set, as it was set; a measured one has its own digits."""
    return f"{100 * share:.4g}%"
