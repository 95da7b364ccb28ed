"""From follow-ups and their context to named features: patterns (`patterns.toml`), facts of form, n-grams.

Columns in, columns out, no model in it: `model.py` weighs what comes out of here, `scripts/followup/train.py`
learns the weights. Nothing here raises on any text. Not for: behaviour (clicks, interruptions), which
outranks text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from stages.distill.signals.followup.patterns import Bools, patterns
from stages.distill.text import column, has_trace, prose, similarity, words

Floats = np.ndarray[Any, np.dtype[np.float64]]

MESSAGE_CHARACTERS = 700  # as the annotators saw them: head and tail of a longer message
CONTEXT_CHARACTERS = 600  # of the request's head and of the answer's end
_ALIKE = 0.6  # cosine of words from which on a message begins to repeat the request
_TOKENS = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W\d_]+(?:'[a-z]+)?|\d|[?!]")
_INTERRUPTED = re.compile(r"\[?request interrupted by user", re.IGNORECASE)
_ASKS = (
    r"(?i)[?？]\W*$|\b(?:would you like|do you want|should i|shall i|let me know|which (?:one|option)"
    r"|please (?:confirm|provide|share|run|paste|add)|quer que eu|prefere|soll ich)\b"
    r"|需要我|告诉我|要我|是否"
)
_CLAIMS = (
    r"(?i)\b(?:fixed|resolved|solved|should (?:now|work|fix|resolve|be)|now (?:works?|correctly|properly"
    r"|uses|shows)|will now|this (?:fixes|ensures|should)|try (?:it|again|running)|refresh|corrigido"
    r"|resolvido)\b|已(?:修复|解决|修正)"
)
_COMPLAINTS = ("persists", "fails", "wrong", "corrects", "blames", "undo", "frustrated", "missing")
_OF_REQUEST = (*_COMPLAINTS, "repairs", "reports", "failure_output", "asks_for_work", "praise", "goes_on")


@dataclass(frozen=True)
class Followup:
    """A message that behaviour does not decide: to be judged by its text.

    Attributes:
        message: the user's next message.
        request: the request that the answer before it was for, "" when it is not known.
        answer: the answer, or its end, "" when it is not known.
        asked: the answer was a question, so saying it again, or "no, the other one", only answers it.
    """

    message: str
    request: str = ""
    answer: str = ""
    asked: bool = False


def shortened(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """The first two thirds and the last third of a text longer than `limit` characters."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n{text[head - limit :]}"


def brief(case: Followup) -> Followup:
    """A case with as much of its texts as is looked at."""
    return Followup(
        shortened(case.message),
        shortened(case.request, CONTEXT_CHARACTERS),
        case.answer.rstrip()[-CONTEXT_CHARACTERS:],
        case.asked,
    )


def readable(cases: Sequence[Followup]) -> dict[str, Floats]:
    """Features a person can read, by name, one value per case; most are 0 or 1."""
    messages = [shortened(case.message) for case in cases]
    requests = [shortened(case.request, CONTEXT_CHARACTERS) for case in cases]
    said = prose(messages)
    found: dict[str, Any] = dict(patterns().found(messages))
    found |= _form(messages, said) | _likeness(cases, messages, said, requests)
    complaint = _any(found, _COMPLAINTS)
    found |= {
        "complains": complaint,
        "only_work": found["asks_for_work"] & ~complaint & ~found["refutes"],
        "pasted_plain": found["pasted_only"] & ~found["trace"] & ~found["failure_output"],
        "plain_report": found["reports"] & ~found["praise"] & ~found["asks_for_work"],
    }
    found |= _of_answer(cases, found)
    before = patterns().found(requests, _OF_REQUEST)
    found |= {f"request.{name}": before[name] for name in _OF_REQUEST}
    found["request.complains"] = _any(before, _COMPLAINTS)
    return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}


def _form(messages: Sequence[str], said: Sequence[str]) -> dict[str, Any]:
    """What a message looks like, whatever it says."""
    count = np.array([len(_TOKENS.findall(text)) for text in said])
    prose_length = np.array([len(text) for text in said], dtype=np.float64)
    return {
        "trace": np.array(has_trace(messages), dtype=np.bool_),
        "question": np.array([text.rstrip().endswith(("?", "？")) for text in said], dtype=np.bool_),
        "length": np.log1p(count) / 4,
        "short": (count > 0) & (count <= 4),
        "pasted_only": count == 0,
        "pasted": 1 - prose_length / np.array([max(1, len(text)) for text in messages]),
    }


def _likeness(
    cases: Sequence[Followup], messages: Sequence[str], said: Sequence[str], requests: Sequence[str]
) -> dict[str, Any]:
    """How much of the request a message says again; nothing where it answers a question."""
    asked_for = prose(requests)
    pairs = [(words(s), words(r)) for s, r in zip(said, asked_for, strict=True)]
    alike = np.array([similarity(s, r) if len(s) >= 2 else 0.0 for s, r in pairs])
    same_form = alike > 0.9  # the same words about other code
    for n in np.flatnonzero(same_form):
        same_form[n] = similarity(words(messages[n]), words(requests[n])) < 0.95
    counts = np.array([not case.asked for case in cases], dtype=np.bool_) & ~same_form
    return {
        "repeats": np.maximum(0.0, alike - _ALIKE) / (1 - _ALIKE) * counts,
        "repeats_all": (alike > 0.95) & counts,
        "alike": alike * counts,
        "same_form": same_form,
    }


def _of_answer(cases: Sequence[Followup], found: dict[str, Any]) -> dict[str, Bools]:
    """What the end of the answer says, and what a message says to it."""
    ends = [case.answer.rstrip()[-CONTEXT_CHARACTERS:] for case in cases]
    asked = np.array([case.asked for case in cases], dtype=np.bool_)
    asks = asked | column([end[-250:] for end in ends]).str.contains(_ASKS).to_numpy()
    return {
        "answer_asks": asks,
        "answer_claims": column(ends).str.contains(_CLAIMS).to_numpy(),
        "asked_short": asks & found["short"],
        "asked_corrects": asks & found["corrects"],
        "asked_complains": asks & found["complains"],
    }


def _any(found: dict[str, Any], names: Sequence[str]) -> Bools:
    return np.asarray(np.logical_or.reduce([found[name] for name in names]), dtype=np.bool_)


def ngrams(message: str) -> list[str]:
    """Words, pairs and triples of words of a message's prose, each once, in order; digits are all alike."""
    return ngrams_of(prose([shortened(message)])[0])


def ngrams_of(said: str) -> list[str]:
    """The same, of prose."""
    tokens = ["^", *("0" if t.isdigit() else t for t in _TOKENS.findall(said.lower()))]
    found = [*tokens[1:], *map(" ".join, pairwise(tokens))]
    found += map(" ".join, zip(tokens, tokens[1:], tokens[2:], strict=False))
    return list(dict.fromkeys(found))


def interrupted(message: str) -> bool:
    """Whether the text is a client's note that its user stopped the agent."""
    return _INTERRUPTED.search(message) is not None
