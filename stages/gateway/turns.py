"""Answers that go on while their engine's weights change: which checkpoint sampled which of their tokens.

The engine says how many tokens it had sampled for each when it stood still. Not here: the change itself
(`swapper.py`), asking the engine (`stages/engine/update.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stages.records import Span

UNPROVEN = ""  # in the place of a checkpoint: weights that were not found to be any
DEFECT = "unproven_weights"  # of a generation with tokens of such weights

_UNKNOWN = "?"  # weights whose proof is under way

Turn = tuple[int, str]  # tokens sampled before, and the checkpoint from then on
_NAMED = 5  # generations in one message


class Turns:
    """Of one engine: the generations under way, and the turns each has met."""

    def __init__(self) -> None:
        self._under_way: dict[str, list[Turn]] = {}
        self._routes: dict[str, str] = {}
        self._began: dict[str, float] = {}  # monotonic

    def begin(self, generation: str, route: str = "") -> None:
        """It is about to be asked for, by this name of the engine's."""
        self._under_way[generation] = []
        self._routes[generation] = route
        self._began[generation] = time.monotonic()

    def end(self, generation: str) -> list[Turn]:
        """Nothing more is sampled for it. The turns it has met; none for one that is not known."""
        self._routes.pop(generation, None)
        self._began.pop(generation, None)
        met = self._under_way.pop(generation, [])
        return [(count, UNPROVEN if known == _UNKNOWN else known) for count, known in met]

    def on(self, route: str) -> bool:
        """Whether a generation under way was asked for by this name."""
        return route in self._routes.values()

    def longest(self) -> str:
        """Which generations are under way and for how long, the oldest first; "" when none is."""
        now = time.monotonic()  # of dictionaries the order is that of `begin`
        named = [f"{name} for {now - began:.1f} s" for name, began in list(self._began.items())[:_NAMED]]
        more = len(self._began) - len(named)
        return ", ".join([*named, *([f"{more} more"] if more else [])])

    def turn(self, sampled: Callable[[str], int | None]) -> int:
        """The engine is about to go on with other weights: `settle` says which. Returns how many will.

        Args:
            sampled: how many tokens a generation has; None for one that is complete.
        """
        met = 0
        for generation, turns in self._under_way.items():
            count = sampled(generation)
            if count is not None:
                turns.append((count, _UNKNOWN))
                met += 1
        return met

    def settle(self, checkpoint: str) -> None:
        """What the engine went on with is this, or UNPROVEN: what answers that ended before it have."""
        for turns in self._under_way.values():
            turns[:] = [(count, checkpoint if known == _UNKNOWN else known) for count, known in turns]


def spans_of(first: str, turns: list[Turn], tokens: int) -> tuple[Span, ...]:
    """Who sampled which of an answer's tokens, in order and without gaps; none are empty.

    Args:
        first: the checkpoint that was served when it began.
        tokens: how many it has; it may have been cut before the engine had told all.
    """
    found: list[Span] = []
    start, sampler = 0, first
    for at, checkpoint in [*turns, (tokens, UNPROVEN)]:
        end = min(at, tokens)
        if end > start:
            if found and found[-1].checkpoint == sampler:
                start = found.pop().start
            found.append(Span(start, end, sampler))
            start = end
        sampler = checkpoint
    return tuple(found)


def defect_of(spans: tuple[Span, ...]) -> str:
    """DEFECT when tokens came of weights that were not proven, "" when none did."""
    return DEFECT if any(span.checkpoint == UNPROVEN for span in spans) else ""
