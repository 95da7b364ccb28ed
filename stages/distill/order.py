"""In which order an episode's events happened: the one place that says so."""

from __future__ import annotations

from collections.abc import Iterable

from stages.records import Event


def in_order(events: Iterable[Event]) -> list[Event]:
    """By event time; of those with the same, as they were received, which is the order they are given in.

    Clients send what happened in a turn together, with one time or with none: ids say nothing of which of
    it was first.
    """
    return sorted(events, key=lambda event: event.at)
