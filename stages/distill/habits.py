"""Two auxiliary rewards as examples of how a team adds its own: pure functions, a line each in a spec.

Both are patterns that were reported of models trained this way: reasoning written out in code comments,
where no length cost counts it, and work done by the terminal alone, where no edit can be refused.
`specs/habits.toml` is the default reward with these two. A team's own lie in its workspace and are named the
same way (docs/hacks.md). Not for: the signals that every spec has (`signals/`).
"""

from __future__ import annotations

from stages.distill.order import answered_at
from stages.distill.own import Answered
from stages.distill.signals import written
from stages.distill.signals.edits import edits_of

_HORIZON_MS = 3_600_000  # what is undone later was written all the same


def comments_over_code(answered: Answered) -> float | None:
    """Share of the written code that is comments, above a quarter, in [0, 0.75]; None: no code was written.

    A quarter is more than most code has, so that ordinary comments cost nothing.
    """
    asked = answered_at(answered.generations)
    found = written.written(edits_of(answered.events, asked, _HORIZON_MS))
    if not found.chars:
        return None
    return max(0.0, found.comment_chars / found.chars - 0.25)


def terminal_only(answered: Answered) -> float | None:
    """1 when tools were called and every one was a terminal, else 0; None when none was called."""
    calls = [call for row in answered.generations for call in row["tool_calls"]]
    return float(written.terminal_only(calls)) if calls else None
