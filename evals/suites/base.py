"""What every suite offers to the gate, and what it is given to run a checkpoint with.

A suite knows cases, metrics and how to try a case. Not here: which checkpoint is the candidate, the
engine behind `complete_batch`, what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cursorbench.errors import UsageError
from cursorbench.harness.chat import ChatRequest
from evals.cases import Attempt, SuiteSpec

Answer = Mapping[str, Any]
CompleteBatch = Callable[[list[ChatRequest]], list[Answer]]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class TextRequest:
    """A prompt of token ids to be continued.

    Attributes:
        stop: texts at which the continuation ends; they are not part of it.
        temperature: 0 for greedy decoding.
        sampling: what else it is sampled with, by vLLM's names (`top_p`).
    """

    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    sampling: Mapping[str, float] = field(default_factory=dict)


class TokenEngine(Protocol):
    """The engine that serves the checkpoint, asked for likelihoods and plain continuations."""

    @property
    def context(self) -> int:
        """Most tokens of a sequence, prompt and continuation together."""

    def ranked(self, sequences: Sequence[Sequence[int]]) -> list[list[tuple[float, int]]]:
        """Per sequence (logprob in nats, rank from 1) of each token after the first, temperature 1."""

    def continued(self, requests: Sequence[TextRequest]) -> list[str]:
        """The continuations, in order."""


@dataclass(frozen=True)
class Subject:
    """A checkpoint to be tried. The weights are held once, by the engine behind all of this.

    Attributes:
        checkpoint: its artifact digest.
        path: its Hugging Face folder, for the tokenizer.
        complete_batch: chat requests to OpenAI assistant messages, in order, sampled by this checkpoint.
        tokens: the same engine for likelihoods and plain text.
    """

    checkpoint: str
    path: Path
    complete_batch: CompleteBatch
    tokens: TokenEngine


class Suite(Protocol):
    """One suite of cases."""

    @property
    def name(self) -> str:
        """In reports, and before the metric in margins: `NAME.METRIC`. The spec's, known without it."""

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


def refused(answer: Answer | None) -> bool:
    """Whether the engine did not take a request: it does not fit its context."""
    return answer is not None and answer.get("finish_reason") == "error"


def require_some_taken(request: ChatRequest, complete_batch: CompleteBatch) -> None:
    """Raise UsageError (exit 2) where a message of one character is refused like a case's first request."""
    (answer,) = complete_batch([replace(request.plain(), max_tokens=1)])
    if answer is not None and refused(answer):
        raise UsageError(
            f"the engine refuses the first request of every case: {answer.get('error') or 'too long'}",
            hint="engine.max_model_len: the prompt and the tools alone are longer",
        )
