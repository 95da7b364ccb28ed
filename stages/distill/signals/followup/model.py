"""The weights of the text model, and the probability it gives. The file is read when asked.

    score = bias + sum of weight * readable feature + scale / sqrt(max(n, least)) * sum of n-gram weights
    probability = 1 / (1 + exp(-(slope * score + intercept)))

n is how many of the message's n-grams the model knows. Slope and intercept are Platt's calibration (Platt
1999), fitted on scores of repositories that the weights were not learnt from. `model.json` is written by
`scripts/followup/train.py`, with the recipe and the digests of its data. Not for: learning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec
import numpy as np

from stages.distill.signals.followup.features import Floats, Followup, ngrams_of, readable, shortened
from stages.distill.text import prose


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


@cache
def load() -> Model:
    """The shipped model."""
    return msgspec.json.decode(resources.files(__package__).joinpath("model.json").read_bytes(), type=Model)


def judge(cases: Sequence[Followup], model: Model | None = None) -> Floats:
    """How likely each follow-up expresses dissatisfaction."""
    model = model or load()
    found = readable(cases)
    score = np.full(len(cases), model.bias)
    for name, weight in model.readable.items():
        score += weight * found[name]
    said = prose([shortened(case.message) for case in cases])
    score += [_ngrams(text, model) for text in said]
    score = np.clip(model.slope * score + model.intercept, -30.0, 30.0)
    return np.asarray(1.0 / (1.0 + np.exp(-score)))


def _ngrams(said: str, model: Model) -> float:
    """What the n-grams of a message's prose add to its score."""
    known = [model.ngrams[gram] for gram in ngrams_of(said) if gram in model.ngrams]
    return model.ngram_scale / math.sqrt(max(len(known), model.ngram_least)) * sum(known)
