"""Why an on-policy proof failed: the likeliest cause, found by trying each one on answers that are off.

Each hypothesis predicts the logged numbers; the first that brings |logp - logged| of the answers that
are off back into tolerance is the diagnosis. The others of the batch may be in order: an engine that was
updated late, or one route that samples otherwise, spoils some answers only.

    tokenizer             the checkpoints' tokenizers differ, or ids lie outside the vocabulary
    sampling parameters   the log fits other parameters (`hypotheses.py`)
    stale engine          the log fits an ancestor, from an answer's first token up to some token
    wrong checkpoint      the log fits another checkpoint of the store
    dtype                 small symmetric noise: the engine computes in a lower precision
    template              the log fits the prompt as another template renders it (`hypotheses.py`), or the
                          recorded prompts do not end as this checkpoint's chat template ends them
    wrong checkpoint      the log fits nothing in this store

Not here: the proof itself (`proof.py`), tokenizers (`evidence.py`). Nothing here changes what is trained
on: the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.errors import RtrlError
from stages.train.batch import Row
from stages.train.forward import Budget, score
from stages.train.hypotheses import (
    other_prompts,
    other_samplings,
    prompt_endings,
    reprompted,
    resampled,
)
from stages.train.proof import TOLERANCES, Tolerance

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Array = NDArray[np.float32]
Floats = NDArray[np.float64]

SAMPLE = 64  # answers
_LOWEST = -100.0  # nats; in place of -inf, of tokens that a hypothesis rules out
_QUANTISED = 4  # times the noise of bfloat16


@dataclass(frozen=True)
class Diagnosis:
    """`cause` is one of the names above; `evidence` a sentence; `hint` what to do."""

    cause: str
    evidence: str
    hint: str


@dataclass(frozen=True)
class Suspect:
    """A checkpoint that may have sampled the tokens instead: `relation` to the recorded sampler."""

    ref: str
    relation: str  # "ancestor" or "other"
    load: Callable[[], PreTrainedModel]


@dataclass(frozen=True)
class _Answers:
    """Answers that are off: one row each, with the tokens of one generation; their logprobs [n], nats."""

    rows: list[Row]
    logged: Array
    logp: Array  # under the recorded checkpoint, as recorded

    def distances(self, logp: Array) -> Floats:
        """[n] |logp - logged|."""
        return np.abs(np.maximum(logp.astype(np.float64), _LOWEST) - self.logged)

    def fit(self, logp: Array | None, tolerance: Tolerance) -> bool:
        """Whether these explain the log; None are of a model that cannot have said it."""
        return logp is not None and float(self.distances(logp).mean()) <= tolerance.mean


def diagnose(
    model: PreTrainedModel,
    rows: Sequence[Row],
    sampler: int,
    logp: Array,
    tolerance: Tolerance,
    budget: Budget,
    suspects: Iterable[Suspect],
    folder: Path,
) -> Diagnosis:
    """The likeliest cause, for the tokens of `rows` that `sampler` (an index into `Batch.samplers`) drew.

    `model` is that checkpoint, in `folder`; `logp` [M] are its logprobs in the batch's flat order.
    """
    answers = _answers_that_are_off(rows, sampler, logp, tolerance)

    longest = max(len(row.token_ids) for row in answers.rows)

    def scored(of: PreTrainedModel, changed: Sequence[Row]) -> Array | None:
        return score(of, changed, len(answers.logged), budget)[0] if _fit(of, changed, longest) else None

    return (
        _other_sampling(lambda changed: scored(model, changed), answers, tolerance, folder)
        or _other_checkpoint(lambda other: scored(other, answers.rows), answers, suspects, tolerance)
        or _lower_precision(answers)
        or _other_template(lambda changed: scored(model, changed), answers, tolerance, folder)
        or Diagnosis(
            "wrong checkpoint",
            "the logged logprobs fit no checkpoint of this store",
            "find out what the engine really serves (`rtrl doctor`), then collect again",
        )
    )


def _fit(model: PreTrainedModel, rows: Sequence[Row], longest: int) -> bool:
    """Whether a model has all ids of the rows, and positions for those that are longer than the `longest` of
    the recorded ones; a row's last token is no input."""
    config: Any = model.config.get_text_config()
    positions = max(longest - 1, getattr(config, "max_position_embeddings", None) or 0)
    return all(
        int(row.token_ids.max()) < config.vocab_size and len(row.token_ids) - 1 <= positions for row in rows
    )


def _answers_that_are_off(rows: Sequence[Row], sampler: int, logp: Array, tolerance: Tolerance) -> _Answers:
    """At most SAMPLE of them, evenly over the batch; where none is, those with the largest differences."""
    found: list[tuple[Row, Array, float, float]] = []
    for row in rows:
        for generation in np.unique(row.generation):
            mine = (row.sampler == sampler) & (row.generation == generation)
            if mine.any():
                part = row.only(mine)
                here = logp[row.flat[mine]]
                away = np.abs(np.maximum(here.astype(np.float64), _LOWEST) - part.logged)
                found.append((part, here, float(away.mean()), float(away.max())))
    off = [each for each in found if not each[2] <= tolerance.mean]
    chosen = off or sorted(found, key=lambda each: -each[3])[: max(1, len(found) // 10)]
    chosen = chosen[:: max(1, len(chosen) // SAMPLE)][:SAMPLE]
    first, numbered = 0, []
    for part, *_ in chosen:
        numbered.append(replace(part, first=first))
        first += len(part.targets)
    return _Answers(
        numbered,
        np.concatenate([part.logged for part, *_ in chosen]),
        np.concatenate([here for _, here, *_ in chosen]),
    )


def _other_sampling(
    scored: Callable[[Sequence[Row]], Array | None], answers: _Answers, tolerance: Tolerance, folder: Path
) -> Diagnosis | None:
    for name, change in other_samplings(folder):
        changed = resampled(answers.rows, change)
        if changed is not None and answers.fit(scored(changed), tolerance):
            return Diagnosis(
                "sampling parameters",
                f"the logged logprobs fit {name}, not the recorded sampling parameters",
                "the gateway must record the parameters the engine really used",
            )
    return None


def _other_checkpoint(
    scored: Callable[[PreTrainedModel], Array | None],
    answers: _Answers,
    suspects: Iterable[Suspect],
    tolerance: Tolerance,
) -> Diagnosis | None:
    own = answers.distances(answers.logp)
    for suspect in suspects:
        try:
            logp = scored(suspect.load())
        except RtrlError:  # damaged, or not to be packed: whoever needs it says so
            continue
        if logp is None:
            continue
        if answers.fit(logp, tolerance):
            return _named(suspect, "the tokens were")
        other = answers.distances(logp)
        if suspect.relation == "ancestor" and _switched(answers.rows, other, own) <= tolerance.mean:
            return _named(suspect, "the answers begin as")
    return None


def _named(suspect: Suspect, what: str) -> Diagnosis:
    if suspect.relation == "ancestor":
        return Diagnosis(
            "stale engine",
            f"{what} sampled by {suspect.ref}, an ancestor of the recorded checkpoint",
            "the engine kept old weights or an old prefix cache: deploy again, then collect",
        )
    return Diagnosis(
        "wrong checkpoint",
        f"{what} sampled by {suspect.ref}, not by the recorded checkpoint",
        "the gateway attributed them wrongly: deploy again, then collect",
    )


def _switched(rows: Sequence[Row], before: Floats, after: Floats) -> float:
    """Mean distance [n] when each answer is of `before` up to its best token and of `after` from there on."""
    total = 0.0
    for row in rows:
        begun, rest = before[row.flat], after[row.flat]
        sums = np.concatenate([[0.0], begun.cumsum()]) + np.concatenate([rest[::-1].cumsum()[::-1], [0.0]])
        total += float(sums.min())
    return total / len(before)


def _lower_precision(answers: _Answers) -> Diagnosis | None:
    difference = answers.logp.astype(np.float64) - answers.logged
    if not np.isfinite(difference).all():
        return None
    size, limit = np.abs(difference), TOLERANCES["bfloat16"]
    mean, p99 = float(size.mean()), float(np.quantile(size, 0.99))
    if abs(float(difference.mean())) > 0.5 * mean:
        return None
    if mean <= limit.mean and p99 <= limit.p99:
        return Diagnosis(
            "dtype",
            f"the differences are small and symmetric (mean {mean:.3g} nats)",
            "the engine computes in a lower precision than `engine.dtype` says: set it to what is served",
        )
    if mean <= _QUANTISED * limit.mean and p99 <= _QUANTISED * limit.p99:
        return Diagnosis(
            "dtype",
            f"the differences are symmetric and larger than bfloat16's (mean {mean:.3g} nats)",
            "the engine seems to serve quantised weights or a quantised cache (fp8, int4): serve bfloat16",
        )
    return None


def _other_template(
    scored: Callable[[Sequence[Row]], Array | None], answers: _Answers, tolerance: Tolerance, folder: Path
) -> Diagnosis | None:
    hint = "the engine renders prompts with another chat template than the checkpoint's"
    for name, change in other_prompts(folder):
        changed = reprompted(answers.rows, change)
        if changed is not None and answers.fit(scored(changed), tolerance):
            return Diagnosis("template", f"the logged logprobs fit the recorded prompts {name}", hint)
    fits = prompt_endings(answers.rows, folder)
    if fits and not any(fits):
        return Diagnosis(
            "template", "no recorded prompt ends as the checkpoint's chat template begins an answer", hint
        )
    return None
