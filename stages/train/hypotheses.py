"""What else the engine may have done with the same request: other sampling parameters, another prompt.

Each hypothesis is a name and a change of the recorded rows; whether it explains the log is found out in
`diagnosis.py`. Not for: other checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cursorbench.pretrained import tokenizer_of
from stages.records import Sampling
from stages.sequences import GenerationInfo
from stages.train.batch import Row

Ids = NDArray[np.int32]

_TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0)
_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def other_samplings(folder: Path) -> Iterator[tuple[str, Callable[[Sampling], Sampling]]]:
    """Names and changes of recorded sampling parameters, the likeliest first."""

    def with_temperature(value: float) -> Callable[[Sampling], Sampling]:
        return lambda sampling: msgspec.structs.replace(sampling, temperature=value)

    yield "the raw logits (an engine run without --logprobs-mode processed_logprobs)", lambda _: Sampling()
    yield "temperature alone", lambda sampling: Sampling(temperature=sampling.temperature)
    yield (
        "no truncation by top-k, top-p or min-p",
        lambda sampling: msgspec.structs.replace(sampling, top_k=0, top_p=1.0, min_p=0.0),
    )
    if defaults := _generation_defaults(folder):
        shown = ", ".join(f"{name} {value:g}" for name, value in defaults.items())
        yield (
            f"the defaults of generation_config.json ({shown})",
            lambda sampling: _filled(sampling, defaults),
        )
    for temperature in _TEMPERATURES:
        yield f"temperature {temperature:g}", with_temperature(temperature)


def _generation_defaults(folder: Path) -> dict[str, float]:
    """What an engine puts in for parameters that a request does not name, unless told not to."""
    try:
        found = json.loads((folder / "generation_config.json").read_bytes())
    except (OSError, ValueError, RecursionError):  # there is none: no hypothesis
        return {}
    if not isinstance(found, dict):
        return {}
    neutral = Sampling()
    return {
        name: found[name]
        for name in _DEFAULTS
        if isinstance(found.get(name), int | float) and found[name] != getattr(neutral, name)
    }


def _filled(sampling: Sampling, defaults: dict[str, float]) -> Sampling:
    neutral = Sampling()
    unnamed = {
        name: type(getattr(neutral, name))(value)
        for name, value in defaults.items()
        if getattr(sampling, name) == getattr(neutral, name)
    }
    return msgspec.structs.replace(sampling, **unnamed)


def resampled(rows: Sequence[Row], change: Callable[[Sampling], Sampling]) -> list[Row] | None:
    """The rows with other sampling parameters; None when that changes nothing."""

    def changed(info: GenerationInfo) -> GenerationInfo:
        return replace(info, sampling=change(info.sampling))

    found = [replace(row, generations=tuple(map(changed, row.generations))) for row in rows]
    same = all(new.generations == old.generations for new, old in zip(found, rows, strict=True))
    return None if same else found


def other_prompts(folder: Path) -> Iterator[tuple[str, Callable[[Ids], Ids]]]:
    """Names and changes of the token ids before an answer."""
    tokenizer = _tokenizer(folder)
    begin = getattr(tokenizer, "bos_token_id", None)
    if begin is not None:
        front = np.array([begin], dtype=np.int32)
        yield "with a begin-of-text token in front", lambda prompt: np.concatenate([front, prompt])
    yield "without their first token", lambda prompt: prompt[1:]
    if ending := generation_prompt(folder):
        tail, size = np.array(ending, dtype=np.int32), len(ending)
        yield (
            "with the template's beginning of an answer behind them",
            lambda prompt: np.concatenate([prompt, tail]),
        )
        yield (
            "without the template's beginning of an answer",
            lambda prompt: prompt[:-size] if prompt[-size:].tolist() == ending else prompt,
        )
        yield (
            "with the template's beginning of an answer in place of their own last tokens",
            lambda prompt: np.concatenate([prompt[:-size], tail]),
        )


def reprompted(rows: Sequence[Row], change: Callable[[Ids], Ids]) -> list[Row] | None:
    """The rows, each with the tokens of one generation, with another prompt before it; None when nothing
    changes, or a prompt would be empty."""
    found = []
    for row in rows:
        (index,) = np.unique(row.generation)
        info = row.generations[index]
        prompt = change(row.token_ids[: info.output_start])
        if not len(prompt):
            return None
        moved = len(prompt) - info.output_start
        place = replace(info, output_start=info.output_start + moved, output_end=info.output_end + moved)
        found.append(
            replace(
                row,
                token_ids=np.concatenate([prompt, row.token_ids[info.output_start :]]).astype(np.int32),
                targets=row.targets + moved,
                generations=(*row.generations[:index], place, *row.generations[index + 1 :]),
                routing=None,  # that of other tokens
            )
        )
    same = all(np.array_equal(new.token_ids, old.token_ids) for new, old in zip(found, rows, strict=True))
    return None if same else found


def prompt_endings(rows: Sequence[Row], folder: Path) -> list[bool]:
    """Of each prompt, whether it ends as the checkpoint's chat template begins an answer; [] without one."""
    ending = generation_prompt(folder)
    if not ending:
        return []
    return [
        row.token_ids[info.output_start - len(ending) : info.output_start].tolist() == ending
        for row in rows
        for info in row.generations
        if info.output_start >= len(ending)
    ]


def generation_prompt(folder: Path) -> list[int]:
    """The ids that the checkpoint's chat template puts before an answer; [] when it has none."""
    tokenizer = _tokenizer(folder)
    if tokenizer is None:
        return []
    try:
        message = [{"role": "user", "content": "x"}]
        bare = tokenizer.apply_chat_template(message, tokenize=False)
        asked = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except (ValueError, TypeError):  # no template, or one that wants more
        return []
    if not asked.startswith(bare):
        return []
    return [int(token) for token in tokenizer.encode(asked[len(bare) :], add_special_tokens=False)]


def _tokenizer(folder: Path) -> Any:
    try:
        return tokenizer_of(folder)
    except (ValueError, OSError):
        return None
