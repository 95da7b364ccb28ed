"""Blocks of consecutive lines: where they stand, and with which lines texts begin and end alike.

Not for: which lines count (`lines.py`). Everything here takes time in proportion to the lines given: a file
may have a million of them, all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from operator import ne


def joined(lines: Sequence[str]) -> str:
    """Each line between two line ends, the end of one the beginning of the next."""
    return "\n".join(["", *lines, ""])


def occurrences(block: Sequence[str], text: str) -> int:
    """How often `block` stands in the `joined` lines, consecutive, overlaps too; 0 for an empty block.

    A file may have a million lines and half of them be the block, so both are read once: where the block
    stands and goes on to repeat itself, it stands again.
    """
    sought = joined(block)
    at = text.find(sought) if block else -1
    if at < 0:
        return 0
    again = joined(block[-_period(block) :])[1:]  # behind a place where it stands, it stands once more
    found = 0
    while at >= 0:
        found += 1
        at = at + len(again) if text.startswith(again, at + len(sought)) else text.find(sought, at + 1)
    return found


def _period(block: Sequence[str]) -> int:
    """By how many lines it is shifted at least to lie on itself (Knuth, Morris, Pratt 1977)."""
    border, width = [0] * len(block), 0
    for n in range(1, len(block)):
        while width and block[n] != block[width]:
            width = border[width - 1]
        width += block[n] == block[width]
        border[n] = width
    return len(block) - border[-1]


def place_of(block: Sequence[str], lines: Sequence[str]) -> int:
    """Where `block` first stands in `lines`; -1 when it does not or is empty."""
    text = joined(lines)
    at = text.find(joined(block)) if block else -1
    return text.count("\n", 0, at) if at >= 0 else -1


def alike_ends(*split: Sequence[str]) -> tuple[int, int]:
    """With how many lines all of them begin, and with how many of their others they all end."""
    most = min(map(len, split))
    start = _alike(most, split, iter)
    return start, _alike(most - start, split, reversed)


def _alike(most: int, split: Sequence[Sequence[str]], way: Callable[[Sequence[str]], Iterator[str]]) -> int:
    """With how many lines all begin (or end, `way` being `reversed`), at most `most`."""
    for lines in split[1:]:
        most = next(compress(range(most), map(ne, way(split[0]), way(lines))), most)
    return most
