"""Why an on-policy proof failed: the likeliest cause, found by trying each one on a sample of the batch.

Each hypothesis predicts the logged numbers; the first that brings |logp - logged| back into
tolerance is the diagnosis:

    tokenizer             the checkpoints' tokenizers differ, or ids lie outside the vocabulary
    sampling parameters   the log fits other parameters (the raw logits, or another temperature)
    stale engine          the log fits an ancestor: the engine kept serving old weights
    wrong checkpoint      the log fits another checkpoint of the store
    dtype                 small symmetric noise: the engine computes in a lower precision
    template              the recorded prompts do not end as this checkpoint's chat template ends them
    wrong checkpoint      the log fits nothing in this store

Not here: the proof itself (`proof.py`). Nothing here changes what is trained on: the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.records import Sampling
from stages.sequences import GenerationInfo
from stages.train.batch import Row
from stages.train.forward import Budget, score
from stages.train.proof import TOLERANCES, Tolerance

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAMPLE = 64  # sequences
_TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0)


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


def diagnose(
    model: PreTrainedModel,
    rows: Sequence[Row],
    tolerance: Tolerance,
    budget: Budget,
    suspects: Iterable[Suspect],
    folder: Path,
) -> Diagnosis:
    """The likeliest cause, for `rows` attributed to `model`, the checkpoint in `folder`."""
    sample = _sample(rows)
    logged = np.concatenate([row.logged for row in sample])

    def distance(of: PreTrainedModel, changed: Sequence[Row]) -> float:
        logp, _ = score(of, changed, len(logged), budget)
        return float(np.mean(np.abs(np.maximum(logp.astype(np.float64), -100.0) - logged)))

    return (
        _other_sampling(lambda changed: distance(model, changed), sample, tolerance)
        or _other_checkpoint(lambda other: distance(other, sample), suspects, tolerance)
        or _lower_precision(score(model, sample, len(logged), budget)[0], logged)
        or _other_template(sample, folder)
        or Diagnosis(
            "wrong checkpoint",
            "the logged logprobs fit no checkpoint of this store",
            "find out what the engine really serves (`rtrl doctor`), then collect again",
        )
    )


def _sample(rows: Sequence[Row]) -> list[Row]:
    step = max(1, len(rows) // SAMPLE)
    first, sample = 0, []
    for row in list(rows)[::step][:SAMPLE]:
        sample.append(replace(row, first=first))
        first += len(row.targets)
    return sample


def _resampled(rows: Sequence[Row], change: Callable[[Sampling], Sampling]) -> list[Row]:
    def changed(info: GenerationInfo) -> GenerationInfo:
        return replace(info, sampling=change(info.sampling))

    return [replace(row, generations=tuple(map(changed, row.generations))) for row in rows]


def _other_sampling(
    distance: Callable[[Sequence[Row]], float], rows: Sequence[Row], tolerance: Tolerance
) -> Diagnosis | None:
    import msgspec

    hypotheses: list[tuple[str, Callable[[Sampling], Sampling]]] = [
        ("the raw logits (an engine run without --logprobs-mode processed_logprobs)", lambda s: Sampling()),
        ("temperature alone", lambda s: Sampling(temperature=s.temperature)),
    ]
    for temperature in _TEMPERATURES:
        hypotheses.append(
            (
                f"temperature {temperature:g}",
                lambda s, t=temperature: msgspec.structs.replace(s, temperature=t),  # type: ignore[misc]
            )
        )
    for name, change in hypotheses:
        if distance(_resampled(rows, change)) <= tolerance.mean:
            return Diagnosis(
                "sampling parameters",
                f"the logged logprobs fit {name}, not the recorded sampling parameters",
                "the gateway must record the parameters the engine really used",
            )
    return None


def _other_checkpoint(
    distance: Callable[[PreTrainedModel], float], suspects: Iterable[Suspect], tolerance: Tolerance
) -> Diagnosis | None:
    for suspect in suspects:
        if distance(suspect.load()) <= tolerance.mean:
            if suspect.relation == "ancestor":
                return Diagnosis(
                    "stale engine",
                    f"the tokens were sampled by {suspect.ref}, an ancestor of the recorded checkpoint",
                    "the engine kept old weights or an old prefix cache: deploy again, then collect",
                )
            return Diagnosis(
                "wrong checkpoint",
                f"the tokens were sampled by {suspect.ref}, not by the recorded checkpoint",
                "the gateway attributed them wrongly: deploy again, then collect",
            )
    return None


def _lower_precision(logp: NDArray[np.float32], logged: NDArray[np.float32]) -> Diagnosis | None:
    difference = logp.astype(np.float64) - logged
    size = np.abs(difference)
    limit = TOLERANCES["bfloat16"]
    symmetric = abs(float(difference.mean())) <= 0.5 * float(size.mean())
    if float(size.mean()) <= limit.mean and float(np.quantile(size, 0.99)) <= limit.p99 and symmetric:
        return Diagnosis(
            "dtype",
            f"the differences are small and symmetric (mean {size.mean():.3g} nats)",
            "the engine computes in a lower precision than `engine.dtype` says: set it to what is served",
        )
    return None


def _other_template(rows: Sequence[Row], folder: Path) -> Diagnosis | None:
    ending = generation_prompt(folder)
    if not ending:
        return None
    fits = [
        row.token_ids[info.output_start - len(ending) : info.output_start].tolist() == ending
        for row in rows
        for info in row.generations
        if info.output_start >= len(ending)
    ]
    if fits and not any(fits):
        return Diagnosis(
            "template",
            "no recorded prompt ends as the checkpoint's chat template begins an answer",
            "the engine renders prompts with another chat template than the checkpoint's",
        )
    return None


def generation_prompt(folder: Path) -> list[int]:
    """The ids that the checkpoint's chat template puts before an answer; [] when it has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        message = [{"role": "user", "content": "x"}]
        bare = tokenizer.apply_chat_template(message, tokenize=False)
        asked = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except (ValueError, OSError, TypeError):  # no tokenizer, no template, or one that wants more
        return []
    if not asked.startswith(bare):
        return []
    return [int(token) for token in tokenizer.encode(asked[len(bare) :], add_special_tokens=False)]
