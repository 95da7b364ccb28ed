"""Codebase perplexity: bits per byte over the lines that a team's repository got after a date.

Bits are -log2 of the probability that the served engine gives to the tokens of the new lines, each given
what stands before it in its file, as far as the context reaches: windows of the engine's context overlap by
half, every token is scored once. Bytes are the UTF-8 bytes of the same lines, so the figure means the same
whatever the tokenizer. Clustered by file. Not here: which lines are new (`held_out.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cursorbench.errors import IntegrityError, UsageError
from cursorbench.pretrained import tokenizer_of
from evals.cases import Attempt, Metric, SuiteSpec
from evals.suites.base import Advance, Subject
from evals.suites.held_out import Document

METRICS = (
    Metric("bits_per_byte", "lower", 0.02, "bits/byte", "of lines that came after the date", sampled=False),
)
SEQUENCES = 64  # asked of the engine at once


@dataclass(frozen=True)
class Window:
    """Token ids for the engine, and the positions in them (from 1) whose logprobs count."""

    ids: tuple[int, ...]
    counted: tuple[int, ...]


class PerplexitySuite:
    """New lines of one repository.

    Args:
        name: the suite's name in reports.
        load: gives the documents; called once, when they are needed.
    """

    batch = 32  # files

    def __init__(self, name: str, load: Callable[[], Sequence[Document]]) -> None:
        self.name, self._load = name, load

    @property
    def spec(self) -> SuiteSpec:
        """One gated metric."""
        return SuiteSpec(self.name, METRICS, attempts=1, cluster="file")

    def cases(self) -> Sequence[str]:
        """Paths of the files."""
        return list(self._by_path)

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Score the named files. Raises IntegrityError (12) when the checkpoint gives no finite number."""
        tokenizer = tokenizer_of(subject.path)
        return [self._attempt(subject, tokenizer, self._by_path[case], first, advance) for case in cases]

    @cached_property
    def _by_path(self) -> dict[str, Document]:
        return {one.path: one for one in self._load()}

    def _attempt(
        self, subject: Subject, tokenizer: Any, document: Document, number: int, advance: Advance
    ) -> Attempt:
        tokens = encoded(tokenizer, document)
        detail: dict[str, Any] = {"bytes": document.new_bytes}
        if tokens is None:  # says nothing in either arm
            value, detail["skipped"] = (0.0, 0.0), "the tokenizer does not keep this text"
        else:
            made = windows(*tokens, subject.tokens.context - 1)  # the engine generates one token
            value = self._bits(subject, made, document.path), float(document.new_bytes)
            detail["tokens"] = sum(len(window.counted) for window in made)
        advance(1)
        return Attempt(document.path, document.path, number, {"bits_per_byte": value}, detail=detail)

    def _bits(self, subject: Subject, made: Sequence[Window], path: str) -> float:
        nats = 0.0
        for start in range(0, len(made), SEQUENCES):
            some = made[start : start + SEQUENCES]
            scores = subject.tokens.ranked([window.ids for window in some])
            for window, row in zip(some, scores, strict=True):
                nats -= sum(row[position - 1][0] for position in window.counted)
        if not math.isfinite(nats):
            raise IntegrityError(
                f"checkpoint {subject.checkpoint[:19]} gives no finite score on {path}",
                hint="its weights are not usable: look at the train run that made it",
            )
        return nats / math.log(2)


def encoded(tokenizer: Any, document: Document) -> tuple[list[int], list[bool]] | None:
    """Token ids, first what begins a text (of a tokenizer without: ends one), and which are of new lines.

    Old and new lines are encoded apart, so that each token belongs to one side. None when the tokenizer
    changes the text (unknown characters, normalisation): bits of another text would be counted.

    Raises:
        UsageError: (exit 2) the tokenizer has no token to begin with.
    """
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise UsageError("the checkpoint's tokenizer has neither an end-of-text nor a begin-of-text token")
    ids, new = [int(start)], [False]
    for piece in document.pieces:
        own = tokenizer.encode(piece.text, add_special_tokens=False)
        if piece.new and tokenizer.decode(own, clean_up_tokenization_spaces=False) != piece.text:
            return None
        ids += own
        new += [piece.new] * len(own)
    return ids, new


def windows(ids: Sequence[int], new: Sequence[bool], size: int) -> list[Window]:
    """Windows of at most `size` tokens in which every new token is counted once.

    A token has everything before it as context, or at least half a window. Windows without a new token to
    count are left out.
    """
    if size < 2:
        raise ValueError("a window needs a token to predict and one before it")
    step = max(1, size // 2)
    found = []
    counted, start = 1, 0  # the first token has nothing before it
    while counted < len(ids):
        end = min(start + size, len(ids))
        positions = tuple(at - start for at in range(counted, end) if new[at])
        if positions:
            found.append(Window(tuple(ids[start:end]), positions))
        counted, start = end, start + step
    return found
