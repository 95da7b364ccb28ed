"""Learning the text model: a logistic regression drawn to set priors, and its calibration.

    minimise  sum_i w_i log(1 + exp(-s_i z_i)) + 1/(2 c) |u - u0|^2 + 1/(2 g) |v|^2

u weighs the readable features, u0 are `priors.toml`; v weighs n-grams; s is +1 or -1. Few repositories and
much that only one of them has: without the priors the weights learn the repositories (docs/followup.md).
Messages of one form share one message's weight. Those decided by what the user did (rule 8) are not learnt
from: their texts say nothing. Not for: choosing texts or labels.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from stages.distill.signals.followup.features import Followup, ngrams_of, readable, shortened
from stages.distill.signals.followup.model import Model
from stages.distill.text import prose

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "stages/distill/signals/followup_data/messages.jsonl"
WRITTEN = HERE / "written.tsv"
PRIORS = HERE / "priors.toml"
RECIPE: dict[str, float | int | str] = {
    "readable_variance": 0.01,
    "ngram_variance": 1.0,
    "ngram_scale": 2.0,
    "ngram_least": 10,
    "ngram_in_messages": 2,  # rarer ones are no feature
    "written_weight": 1.0,
    "folds": 6,  # of owners, for the calibration
    "alike": 0.4,  # share of n-grams from which on two messages are of one form
}
SCHEMA = "rtrl-followup/2"
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the data set; `label` is 1, 0 or "unusable", `rule` the adjudicated or first one's."""

    id: str
    repository: str
    request: str
    answer_end: str
    message: str
    a: str
    b: str
    label: str
    rule: str

    @property
    def owner(self) -> str:
        """Repositories of one owner are one group."""
        return self.repository.split("/")[0]


@dataclass(frozen=True)
class Examples:
    """Features, labels and weights of messages, in one order."""

    readable: dict[str, Floats]
    ngrams: list[list[str]]
    label: Floats
    weight: Floats

    def __add__(self, other: Examples) -> Examples:
        return Examples(
            {name: np.concatenate([mine, other.readable[name]]) for name, mine in self.readable.items()},
            self.ngrams + other.ngrams,
            np.concatenate([self.label, other.label]),
            np.concatenate([self.weight, other.weight]),
        )

    def at(self, chosen: Sequence[int] | np.ndarray[Any, Any]) -> Examples:
        """Some of them."""
        index = np.asarray(chosen, dtype=np.int64)
        return Examples(
            {name: values[index] for name, values in self.readable.items()},
            [self.ngrams[i] for i in index],
            self.label[index],
            self.weight[index],
        )


def read(path: Path = DATA) -> list[Labelled]:
    """The usable messages of a data set, in its order."""
    rows = [msgspec.json.decode(line, type=Labelled) for line in path.read_bytes().splitlines()]
    return [row for row in rows if row.label != "unusable"]


def case(row: Labelled) -> Followup:
    """A message as the model sees it."""
    return Followup(row.message, row.request, row.answer_end)


def examples(rows: Sequence[Labelled]) -> Examples:
    """Real messages, weighed as the module says."""
    grams = _grams([row.message for row in rows])
    forms = one_per_form(grams)
    return Examples(
        readable([case(row) for row in rows]),
        grams,
        np.array([float(row.label) for row in rows]),
        np.array([0.0 if row.rule == "8" else form for row, form in zip(rows, forms, strict=True)]),
    )


def written(path: Path = WRITTEN) -> Examples:
    """Messages written for training, without context."""
    lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    texts = [text.replace("\\n", "\n") for _, text in lines]
    return Examples(
        readable([Followup(text) for text in texts]),
        _grams(texts),
        np.array([float(label) for label, _ in lines]),
        np.full(len(lines), float(RECIPE["written_weight"])),
    )


def _grams(messages: Sequence[str]) -> list[list[str]]:
    """`features.ngrams` of each message; their prose is found in one column, as `model.judge` does."""
    return [ngrams_of(said) for said in prose([shortened(message) for message in messages])]


def one_per_form(grams: Sequence[list[str]]) -> Floats:
    """1 / how many messages share a message's form: filled-in templates count once."""
    heads: list[set[str]] = []
    form = []
    for mine in map(set, grams):
        found = next(
            (
                n
                for n, head in enumerate(heads)
                if min(len(mine), len(head)) > 8
                and len(mine & head) >= float(RECIPE["alike"]) * min(len(mine), len(head))
            ),
            len(heads),
        )
        if found == len(heads):
            heads.append(mine)
        form.append(found)
    sizes = Counter(form)
    return np.array([1.0 / sizes[one] for one in form])


@dataclass(frozen=True)
class Fitted:
    """Weights before calibration."""

    names: list[str]
    vocabulary: dict[str, int]
    weights: Floats  # readable, n-grams, bias

    def scores(self, found: Examples) -> Floats:
        """Log-odds."""
        scores: Floats = _matrix(found, self.names, self.vocabulary) @ self.weights[:-1] + self.weights[-1]
        return scores


def fit(found: Examples) -> Fitted:
    """The weights, see the module. Deterministic."""
    names = sorted(found.readable)
    counts = Counter(gram for grams in found.ngrams for gram in grams)
    known = sorted(gram for gram, n in counts.items() if n >= int(RECIPE["ngram_in_messages"]))
    vocabulary = {gram: n for n, gram in enumerate(known)}
    table = tomllib.loads(PRIORS.read_text("utf-8"))
    if strange := table["weights"].keys() - set(names):
        raise ValueError(f"priors.toml weighs {sorted(strange)[0]!r}, which is no feature")
    prior = np.array([*(table["weights"].get(name, 0.0) for name in names), *[0.0] * len(known)])
    pull = np.array(
        [1 / float(RECIPE["readable_variance"])] * len(names)
        + [1 / float(RECIPE["ngram_variance"])] * len(known)
    )
    matrix = _matrix(found, names, vocabulary)
    sign = 2 * found.label - 1

    def loss(weights: Floats) -> tuple[float, Floats]:
        margin = sign * (matrix @ weights[:-1] + weights[-1])
        off = weights[:-1] - prior
        slope = -sign * found.weight / (1 + np.exp(margin))
        value = float((found.weight * np.logaddexp(0, -margin)).sum() + 0.5 * (pull * off * off).sum())
        return value, np.append(matrix.T @ slope + pull * off, slope.sum())

    start = np.append(prior, table["bias"])
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-10})
    return Fitted(names, vocabulary, best.x)


def _matrix(found: Examples, names: Sequence[str], vocabulary: dict[str, int]) -> Any:
    dense = sparse.csr_matrix(np.column_stack([found.readable[name] for name in names]))
    rows, columns, values = [], [], []
    for row, grams in enumerate(found.ngrams):
        known = [vocabulary[gram] for gram in grams if gram in vocabulary]
        rows += [row] * len(known)
        columns += known
        scale = float(RECIPE["ngram_scale"]) / max(len(known), int(RECIPE["ngram_least"])) ** 0.5
        values += [scale] * len(known)
    shape = (len(found.ngrams), len(vocabulary))
    return sparse.hstack([dense, sparse.csr_matrix((values, (rows, columns)), shape=shape)]).tocsr()


def folds(owners: Sequence[str]) -> list[list[str]]:
    """At most `folds` groups of owners, nearly of one size: the next largest owner joins the smallest."""
    sizes = Counter(owners)
    groups: list[list[str]] = [[] for _ in range(min(len(sizes), int(RECIPE["folds"])))]
    for owner in sorted(sizes, key=lambda name: (-sizes[name], name)):
        min(groups, key=lambda group: sum(sizes[name] for name in group)).append(owner)
    return groups


def left_out(found: Examples, extra: Examples, owners: Sequence[str]) -> Floats:
    """Scores of every message by weights learnt without its owner's fold (and with `extra`)."""
    of = np.array(owners)
    scores = np.zeros(len(of))
    for group in folds(owners):
        inside = ~np.isin(of, group)
        fitted = fit(found.at(np.flatnonzero(inside)) + extra)
        scores[~inside] = fitted.scores(found.at(np.flatnonzero(~inside)))
    return scores


def platt(scores: Floats, labels: Floats) -> tuple[float, float]:
    """Slope and intercept of the calibration, with Platt's smoothed targets."""
    yes = labels.sum()
    target = np.where(labels == 1, (yes + 1) / (yes + 2), 1 / (len(labels) - yes + 2))

    def loss(at: Floats) -> tuple[float, Floats]:
        z = at[0] * scores + at[1]
        off = 1 / (1 + np.exp(-z)) - target
        return float((np.logaddexp(0, z) - target * z).sum()), np.array([(off * scores).sum(), off.sum()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return float(found[0]), float(found[1])


def calibrated(scores: Floats, slope: float, intercept: float) -> Floats:
    """Probabilities."""
    return np.asarray(1 / (1 + np.exp(-(slope * scores + intercept))))


def best_threshold(probabilities: Floats, labels: Floats) -> float:
    """The hundredth where F1 is highest; the middle one of several."""
    grid = np.arange(5, 96) / 100
    values = np.array([f1(probabilities > cut, labels) for cut in grid])
    best = grid[values == values.max()]
    return float(best[len(best) // 2])


def f1(said: np.ndarray[Any, Any], labels: Floats) -> float:
    """F1 of dissatisfied; 0 when nothing is found."""
    hits = float((said & (labels == 1)).sum())
    return 2 * hits / max(1.0, float(said.sum()) + float(labels.sum()))


def model(found: Examples, extra: Examples, owners: Sequence[str], data: dict[str, str]) -> Model:
    """The model to ship: weights from everything, calibration from owners left out."""
    apart = left_out(found, extra, owners)
    slope, intercept = platt(apart, found.label)
    fitted = fit(found + extra)
    count = len(fitted.names)
    grams = sorted(fitted.vocabulary, key=fitted.vocabulary.__getitem__)
    weights = [round(float(value), 4) for value in fitted.weights]
    return Model(
        schema=SCHEMA,
        recipe=RECIPE,
        data=data,
        bias=weights[-1],
        readable=dict(zip(fitted.names, weights, strict=False)),
        ngrams={gram: w for gram, w in zip(grams, weights[count:-1], strict=True) if abs(w) >= 0.005},
        ngram_scale=float(RECIPE["ngram_scale"]),
        ngram_least=int(RECIPE["ngram_least"]),
        slope=round(slope, 4),
        intercept=round(intercept, 4),
        threshold=best_threshold(calibrated(apart, slope, intercept), found.label),
    )
