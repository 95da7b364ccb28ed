"""What an engine reported of an answer: its ids and logprobs as arrays, and whether they are exact.

Looked at once a request, so by what costs least of a core. Not for: recording it (`capture.py`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stages import routing
from stages.spool import Tokens
from stages.spool.chains import Ids, Logprobs

OVERFLOW = "context_overflow"  # finish reason of a prompt that did not fit: no tokens, and nothing wrong
_INFINITE = -9999.0  # what vLLM writes for minus infinity, which JSON has not
_ROUNDING = 1e-3  # of a logprob of 0, nats


@dataclass
class Sampled:
    """What the engine reported, as it came. `stopped_by`: the stop string or token that ended it."""

    prompt: Sequence[int] | None = None
    output: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    experts: str | None = None  # of a mixture-of-experts model, as the engine encodes them
    text: str = ""
    finish_reason: str = ""
    stopped_by: str | int | None = None
    usage: dict[str, Any] | None = None
    defect: str = ""


def arrays(sampled: Sampled) -> Tokens:
    """What can be kept of it. Ids that are none are left out, and `defect` says so."""
    experts = None
    if sampled.experts is not None:
        with suppress(ValueError):  # `find_defect` names it
            experts = routing.read(sampled.experts)
    prompt, output = _ids(sampled.prompt or ()), _ids(sampled.output)
    if prompt is None or output is None:
        sampled.defect = sampled.defect or "ids_malformed"
    empty = np.empty(0, np.int32)
    return Tokens(
        empty if prompt is None else prompt,
        empty if output is None else output,
        _logprobs(sampled.logprobs),
        experts,
    )


def _ids(reported: Sequence[int]) -> Ids | None:
    """Token ids; None when these are none: no integers, below 0, or too large for any vocabulary."""
    if not reported:
        return np.empty(0, np.int32)
    try:
        ids = array("i", reported)
    except (OverflowError, TypeError):
        return None
    signs = ids.tobytes()[3::4]  # in each number's last byte, where ASCII has none
    return None if isinstance(reported[0], bool) or not signs.isascii() else np.frombuffer(ids, np.int32)


def _logprobs(reported: Sequence[float | None]) -> Logprobs:
    """As float32; what is no number becomes NaN."""
    numbers: Any = reported
    if not {*map(type, reported)} <= {float, int}:
        numbers = [value if type(value) in (float, int) else math.nan for value in reported]
    if not numbers:
        return np.empty(0, np.float32)
    try:
        return np.frombuffer(array("f", numbers), np.float32)  # infinite where it is too large for one
    except OverflowError:  # an integer too large even for a float64
        return np.full(len(reported), math.nan, np.float32)


def find_defect(sampled: Sampled, tokens: Tokens) -> str:
    """Why the tokens are not exact, "" when they are."""
    n, usage = len(tokens.output), sampled.usage or {}
    low = float(np.minimum.reduce(tokens.logprobs, initial=0.0))  # NaN where one is
    high = float(np.maximum.reduce(tokens.logprobs, initial=0.0))
    checks = (
        # who is cut before the first token may not have heard the prompt's ids yet
        ("no_prompt_ids", bool(n or sampled.text) and not len(tokens.prompt)),
        ("no_output", n == 0 and sampled.finish_reason != OVERFLOW),
        ("logprobs_length", len(tokens.logprobs) != n),
        ("logprobs_not_finite", not (math.isfinite(low) and math.isfinite(high)) or low <= _INFINITE),
        ("logprobs_positive", high > _ROUNDING),
        ("output_length", usage.get("completion_tokens", n) != n),
        ("prompt_length", usage.get("prompt_tokens", len(tokens.prompt)) != len(tokens.prompt)),
        (routing.MALFORMED, sampled.experts is not None and tokens.experts is None),
        (routing.LENGTH, tokens.experts is not None and not tokens.routed),
    )
    return next((name for name, wrong in checks if wrong), "")
