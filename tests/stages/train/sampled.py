"""Episodes really sampled from tiny models, once for all tests of a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from stages.records import Sampling, Span
from tests.stages.train import naive


@dataclass
class Turn:
    """One generation: what it was asked after, and how it was sampled."""

    prompt: list[int]
    output: np.ndarray
    logprobs: np.ndarray
    checkpoint: str
    sampling: Sampling = naive.PLAIN
    extends: bool = False  # its prompt extends the turn before
    switch: int = 0  # so many tokens were sampled by `before`, the rest by `checkpoint`
    before: str = ""
    experts: np.ndarray | None = None  # of all tokens but the last
    planned: bool = True  # False: distill left it out

    @property
    def spans(self) -> tuple[Span, ...]:
        ends = [(0, self.switch, self.before), (self.switch, len(self.output), self.checkpoint)]
        return tuple(Span(start, end, checkpoint) for start, end, checkpoint in ends if end > start)


@dataclass
class Sampled:
    """The turns of one episode after the other, the same for all tests that ask for them.

    Drawn token by token by the whole model, which took a third of the time of tests of whole runs.
    """

    checkpoint: str
    seed: int
    sampling: Sampling
    count: int
    engine: str
    turns: list[list[Turn]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)
        self._rng = np.random.default_rng(self.seed)

    def more(self, model: Any) -> None:
        """One episode more, by the checkpoint's model."""
        rng = self._rng
        prompt = [1, *rng.integers(4, 64, rng.integers(2, 12)).tolist(), 0, 2]
        made: list[Turn] = []
        for turn in range(self.count):
            output, logged = naive.sample(
                model, prompt, int(rng.integers(2, 9)), self._generator, self.sampling
            )
            made.append(Turn(prompt, output, logged, self.checkpoint, self.sampling, extends=turn > 0))
            prompt = [*prompt, *output.tolist(), 0, 1, *rng.integers(4, 64, 3).tolist(), 0, 2]
        self.turns.append(made)


sampled = cache(Sampled)
