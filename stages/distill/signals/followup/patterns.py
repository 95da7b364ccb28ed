"""The patterns of `patterns.toml`, looked for in columns of messages. Not for: weighing what is found.

Polars looks; it knows no lookaround. Where a pattern forbids something before or after (`(?!`, `(?<!`), it
looks for the pattern without that, and Python's `re`, which knows it, decides about the few texts found.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np

from stages.distill.text import column, prose

Bools = np.ndarray[Any, np.dtype[np.bool_]]
_FLAGS = "(?im)"


@dataclass(frozen=True)
class Pattern:
    """One feature: what it looks for, and where."""

    exact: re.Pattern[str]
    opening: bool  # only where a message begins
    whole: bool  # in the whole message, code and traces too

    @cached_property
    def loose(self) -> str:
        """The same for Polars, what is forbidden around left out: it finds at least as much."""
        return _FLAGS + _without_lookaround(self.exact.pattern)


@dataclass(frozen=True)
class Patterns:
    """What `patterns.toml` says."""

    opening_characters: int
    all: dict[str, Pattern]

    def found(self, texts: Sequence[str], names: Iterable[str] = ()) -> dict[str, Bools]:
        """Which texts have a feature, for each of `names` (default: all)."""
        said = column(prose(texts))
        plain = said.str.replace_all(self.all["resolved"].loose, " resolved ")
        opening = plain.str.slice(0, self.opening_characters)
        whole = column(texts)
        seen = {}
        for name in names or self.all:
            pattern = self.all[name]
            looked_at = opening if pattern.opening else whole if pattern.whole else plain
            seen[name] = looked_at.str.contains(pattern.loose).to_numpy().copy()
            if pattern.loose != _FLAGS + pattern.exact.pattern:
                for row in np.flatnonzero(seen[name]):
                    seen[name][row] = pattern.exact.search(looked_at[int(row)]) is not None
        if "resolved" in seen:
            seen["resolved"] = (plain != said).to_numpy()
        return seen


@cache
def patterns() -> Patterns:
    """The shipped patterns."""
    table = tomllib.loads(resources.files(__package__).joinpath("patterns.toml").read_text("utf-8"))
    return Patterns(
        opening_characters=table["opening_characters"],
        all={
            name: Pattern(
                re.compile("|".join(f"(?:{p})" for p in entry["patterns"]), re.IGNORECASE | re.MULTILINE),
                bool(entry.get("opening")),
                bool(entry.get("whole")),
            )
            for name, entry in table.items()
            if isinstance(entry, dict)
        },
    )


def _without_lookaround(pattern: str) -> str:
    """A pattern without its negative lookaheads and lookbehinds."""
    kept, at = [], 0
    while at < len(pattern):
        if pattern.startswith(("(?!", "(?<!"), at):
            at = _end_of_group(pattern, at)
        else:
            step = 2 if pattern[at] == "\\" else 1
            kept.append(pattern[at : at + step])
            at += step
    return "".join(kept)


def _end_of_group(pattern: str, start: int) -> int:
    """Behind the parenthesis that closes the group at `start`; character classes with parentheses aside."""
    depth, at = 0, start
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] in "()":
            depth += 1 if pattern[at] == "(" else -1
            if not depth:
                return at + 1
        at += 1
    raise ValueError(f"no end to the group at {start} of {pattern!r}")
