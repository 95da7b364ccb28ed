"""Columns that only the monitors need: what code was written, how tools were called, which kind of request.

Nothing of it is in a reward unless a team makes it so (`habits.py`). Not for: signals (`measure.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.distill.facts import Episode
from stages.distill.signals.edits import Edits
from stages.distill.signals.written import Written, terminal_only, written
from stages.distill.strata import language
from stages.exits import exit_of

_SIZES = ((2_000, "small"), (16_000, "middle"))  # tokens of the first prompt, context and all
_LENGTHS = ((100, "brief"), (400, "usual"))  # characters that the person wrote; else long
HANDS = ("policy", "infrastructure")  # an exit by another hand is no news of the policy
NO_REACTION = ("edit_applied", "tool_result", "session_closed")  # that say nothing about the answer


def watched(
    episodes: Sequence[Episode], edits: Sequence[Edits], works: Sequence[str], request_tokens: Sequence[int]
) -> dict[str, Any]:
    """The columns, [E] each; nan where not known: of files that are told by name alone no text is known."""
    found = [_written(of) for of in edits]
    calls = [[len(row["tool_calls"]) for row in e.generations] for e in episodes]
    return {
        "cell": [
            f"{work}/{language(e.request) or 'any'}/{_class(int(tokens), _SIZES, 'large')}"
            f"/{_class(len(e.request), _LENGTHS, 'long')}"
            for e, work, tokens in zip(episodes, works, request_tokens, strict=True)
        ],
        "calling_turns": [float(sum(n > 0 for n in of)) for of in calls],
        "parallel_turns": [float(sum(n > 1 for n in of)) for of in calls],
        "terminal_only": [
            float(terminal_only([call for row in e.generations for call in row["tool_calls"]]))
            for e in episodes
        ],
        "silent": [float(all(event.type in NO_REACTION for event in e.events)) for e in episodes],
        "lost_turns": [lost_turns(e) for e in episodes],
        "lines_added": [of.lines_added if of else np.nan for of in found],
        "lines_deleted": [of.lines_deleted if of else np.nan for of in found],
        "written_chars": [of.chars if of else np.nan for of in found],
        "comment_chars": [of.comment_chars if of else np.nan for of in found],
        "functions": [of.functions if of else np.nan for of in found],
        "function_lines": [of.function_lines if of else np.nan for of in found],
    }


def lost_turns(episode: Episode) -> float:
    """Of an episode that is trained on, the share of model calls that the infrastructure took out of it."""
    taken = [reason for reason in episode.lost.values() if exit_of(reason).by in HANDS]
    return len(taken) / len(episode.generations)


def _written(edits: Edits) -> Written | None:
    return None if edits.unseen else written(edits)


def _class(value: int, bounds: Sequence[tuple[int, str]], rest: str) -> str:
    return next((name for bound, name in bounds if value < bound), rest)
