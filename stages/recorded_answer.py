"""A recorded answer taken apart, as the client was told it: what was thought, and what was said.

What is recorded is what was sampled, and its text alone does not tell whether the prompt had opened a
thought: the gateway says so beside it. Plain completions, logs and records of before have only the text.
Not for: how thoughts are written (`cursorbench/harness/thoughts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from cursorbench.harness.thoughts import Piece, apart
from stages.records import BEGUN


def taken_apart(answer: str, features: Iterable[tuple[str, str]]) -> Piece:
    """The answer of a generation with these features (pairs, as the Arrow column has them)."""
    begun = dict(features).get(BEGUN)
    return apart(answer, begun=None if begun is None else begun == "1")
