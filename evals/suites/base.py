"""What every suite offers to the gate, and what it is given to run a checkpoint with.

A suite knows cases, metrics and how to try a case. Not here: which checkpoint is the candidate, the
engine behind `complete_batch`, what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cursorbench.harness.chat import ChatRequest
from evals.cases import Attempt, SuiteSpec

Answer = Mapping[str, Any]
CompleteBatch = Callable[[list[ChatRequest]], list[Answer]]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Subject:
    """A checkpoint to be tried.

    Attributes:
        checkpoint: its artifact digest.
        path: its Hugging Face folder.
        complete_batch: chat requests to OpenAI assistant messages, in order, sampled by this checkpoint.
    """

    checkpoint: str
    path: Path
    complete_batch: CompleteBatch


class Suite(Protocol):
    """One suite of cases."""

    @property
    def spec(self) -> SuiteSpec:
        """Metrics, margins, attempts, clusters."""

    @property
    def batch(self) -> int:
        """Cases worth trying at once: what a killed eval may lose."""

    def cases(self) -> Sequence[str]:
        """Case names in a fixed order."""

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Try the named cases as often as the spec says. `advance(n)` after n attempts ended.

        Args:
            first: number of the first attempt; above 0 when attempts are added to a comparison that
                was inconclusive. Attempts of different numbers must be independent given the case.
        """
