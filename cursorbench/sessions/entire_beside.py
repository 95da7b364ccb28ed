"""What Entire's metadata say of the transcript in the same folder: whose session it is, and since when.

A transcript may begin in mid-session, and checkpoints have ids that tell no order.
Not for: the metadata's own items (entire.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cursorbench.sessions.reading import json_document, milliseconds, table_of, text_of

METADATA = "metadata.json"
_One = TypeVar("_One")
_DATED = re.compile(r"\d{4}-\d\d-\d\d-(?=.)")  # Entire's first versions put the day before the session's id


def beside(path: Path) -> dict[str, Any]:
    """The metadata in the same folder; empty when there is none."""
    try:
        value = json_document(path.parent / METADATA)
    except OSError:
        return {}
    return table_of(value)


def session_of(told: Mapping[str, Any]) -> str:
    """The session's id as its transcript has it."""
    return _DATED.sub("", text_of(told.get("session_id")), count=1)


def session_of_log(path: Path) -> str:
    """The session of a log that tells none: the metadata's, else the last three parts of its path."""
    about = beside(path)
    entires = session_of(about) if "checkpoint_id" in about else ""
    return entires or "/".join(path.with_suffix("").parts[-3:])


def in_order(paths: Sequence[Path]) -> list[Path]:
    """The same files, those of checkpoints by when they were made: one may go on where another ends."""
    made = lru_cache(maxsize=1)(lambda folder: made_at(beside(folder / METADATA)))
    return by_time(paths, lambda path: made(path.parent))


def by_time(things: Sequence[_One], made: Callable[[_One], int | None]) -> list[_One]:
    """The same things: those that tell when they were made by that, in the places that such ones have."""
    times = {n: at for n, one in enumerate(things) if (at := made(one)) is not None}
    order = iter(sorted(times, key=lambda n: (times[n], n)))
    return [things[next(order) if n in times else n] for n in range(len(things))]


def made_at(told: Mapping[str, Any]) -> int | None:
    """When a session was put into its checkpoint, by its metadata; None where these are not Entire's."""
    return milliseconds(told.get("created_at")) if "checkpoint_id" in told else None
