"""When an episode was answered, and in which order its events happened: the one place that says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stages.records import Event


def in_order(events: Iterable[Event]) -> list[Event]:
    """By event time; of those with the same, as they were received, which is the order they are given in.

    Clients send what happened in a turn together, with one time or with none: ids say nothing of which of
    it was first.
    """
    return sorted(events, key=lambda event: event.at)


def answered_at(generations: Iterable[Mapping[str, Any]]) -> int:
    """Event time (ms) of an episode's last request: of several side by side not of that which ended last.

    What the answer took is of the wall clock, which says nothing of simulated users' time: it is not added.
    """
    return max(int(row["at"]) for row in generations)
