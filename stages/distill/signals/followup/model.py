"""The weights of the text model, and the probability it gives. Pure Python; the file is read when asked.

    score = bias + sum of weight * readable feature + scale / sqrt(max(n, least)) * sum of n-gram weights
    probability = 1 / (1 + exp(-(slope * score + intercept)))

n is how many of the message's n-grams the model knows. Slope and intercept are Platt's calibration (Platt
1999), fitted on scores of repositories that the weights were not learnt from. `model.json` is written by
`scripts/followup/train.py`, with the recipe and the digests of its data. Not for: learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from stages.distill.signals.followup.features import ngrams, readable


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What `model.json` holds. Weights are log-odds before calibration; `threshold` is of a probability."""

    schema: str
    recipe: dict[str, float | int | str]
    data: dict[str, str]  # sha256 of each file that the weights follow from
    bias: float
    readable: dict[str, float]
    ngrams: dict[str, float]
    ngram_scale: float
    ngram_least: int
    slope: float
    intercept: float
    threshold: float  # where F1 is highest on repositories left out


@dataclass(frozen=True)
class Judged:
    """A probability and what it is made of: log-odds by feature, largest first."""

    probability: float
    terms: tuple[tuple[str, float], ...]


@cache
def load() -> Model:
    """The shipped model."""
    return msgspec.json.decode(resources.files(__package__).joinpath("model.json").read_bytes(), type=Model)


def judge(message: str, request: str, answer: str, asked: bool, model: Model | None = None) -> Judged:
    """How likely a follow-up expresses dissatisfaction, see `features.readable` for the arguments."""
    model = model or load()
    terms = [
        (name, model.readable.get(name, 0.0) * value)
        for name, value in readable(message, request, answer, asked).items()
    ]
    known = [(gram, model.ngrams[gram]) for gram in ngrams(message) if gram in model.ngrams]
    scale = model.ngram_scale / math.sqrt(max(len(known), model.ngram_least))
    terms += [(f"'{gram}'", scale * weight) for gram, weight in known]
    score = model.slope * (model.bias + sum(value for _, value in terms)) + model.intercept
    told = sorted(((n, v * model.slope) for n, v in terms if v), key=lambda term: -abs(term[1]))
    return Judged(1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score)))), tuple(told))
