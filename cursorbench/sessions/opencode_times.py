"""How long an answer of OpenCode's took. For `opencode`.

A message is complete when its tools are, which may run for minutes or wait for a person (`question`). What
the model took ends where they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cursorbench.sessions.reading import milliseconds, table_of


def spent(info: dict[str, Any], parts: Sequence[Any], last: int) -> float | None:
    """Milliseconds of the answer whose last text is `parts[last]`; None where the log does not tell.

    From when the message was made, or the tools before that text had ended, until it was complete, or the
    first tool behind it began.
    """
    made = table_of(info.get("time"))
    begun, ended = milliseconds(made.get("created")), milliseconds(made.get("completed"))
    if begun is None or ended is None:
        return None
    for number, part in enumerate(map(table_of, parts)):
        if part.get("type") == "tool":
            ran = table_of(table_of(part.get("state")).get("time"))
            start, end = milliseconds(ran.get("start")), milliseconds(ran.get("end"))
            if number < last and end is not None:
                begun = max(begun, end)
            elif number > last and start is not None:
                ended = min(ended, start)
    return float(ended - begun) if ended >= begun else None
