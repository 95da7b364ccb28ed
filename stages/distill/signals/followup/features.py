"""From a follow-up and its context to named features: patterns (`patterns.toml`), facts of form, n-grams.

Pure Python, no model in it: `model.py` weighs what comes out of here, `scripts/followup/train.py` learns the
weights. Nothing here raises on any text. Not for: behaviour (clicks, interruptions), which outranks text.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

from stages.distill.text import has_trace, prose, similarity, words

MESSAGE_CHARACTERS = 700  # as the annotators saw them: head and tail of a longer message
CONTEXT_CHARACTERS = 600  # of the request's head and of the answer's end
_ALIKE = 0.6  # cosine of words from which on a message begins to repeat the request
_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W\d_]+(?:'[a-z]+)?|\d|[?!]")
_INTERRUPTED = re.compile(r"\[?request interrupted by user", re.IGNORECASE)
_ASKS = re.compile(
    r"[?？]\W*$|\b(?:would you like|do you want|should i|shall i|let me know|which (?:one|option)"
    r"|please (?:confirm|provide|share|run|paste|add)|quer que eu|prefere|soll ich)\b"
    r"|需要我|告诉我|要我|是否",
    re.IGNORECASE,
)
_CLAIMS = re.compile(
    r"\b(?:fixed|resolved|solved|should (?:now|work|fix|resolve|be)|now (?:works?|correctly|properly"
    r"|uses|shows)|will now|this (?:fixes|ensures|should)|try (?:it|again|running)|refresh|corrigido"
    r"|resolvido)\b|已(?:修复|解决|修正)",
    re.IGNORECASE,
)
_COMPLAINTS = ("persists", "fails", "wrong", "corrects", "blames", "undo", "frustrated", "missing")
_OF_REQUEST = (*_COMPLAINTS, "repairs", "reports", "failure_output", "asks_for_work", "praise", "goes_on")


@dataclass(frozen=True)
class Patterns:
    """What `patterns.toml` says: an expression per feature, and where it is looked for."""

    opening_characters: int
    all: dict[str, re.Pattern[str]]
    at_opening: frozenset[str]
    in_whole: frozenset[str]

    def found(self, text: str) -> dict[str, float]:
        """1 or 0 per feature."""
        said = prose(text)
        plain = self.all["resolved"].sub(" resolved ", said)
        opening = plain[: self.opening_characters]
        seen = {
            name: float(
                pattern.search(
                    opening if name in self.at_opening else text if name in self.in_whole else plain
                )
                is not None
            )
            for name, pattern in self.all.items()
        }
        seen["resolved"] = float(plain != said)
        return seen


@cache
def patterns() -> Patterns:
    """The shipped patterns."""
    text = resources.files(__package__).joinpath("patterns.toml").read_text("utf-8")
    table = tomllib.loads(text)
    features = {name: entry for name, entry in table.items() if isinstance(entry, dict)}
    return Patterns(
        opening_characters=table["opening_characters"],
        all={
            name: re.compile("|".join(f"(?:{p})" for p in entry["patterns"]), re.IGNORECASE | re.MULTILINE)
            for name, entry in features.items()
        },
        at_opening=frozenset(name for name, entry in features.items() if entry.get("opening")),
        in_whole=frozenset(name for name, entry in features.items() if entry.get("whole")),
    )


@lru_cache(maxsize=2048)  # a message is the request of the next answer, and many are alike ("continue")
def _found(text: str) -> dict[str, float]:
    return patterns().found(text)


def shortened(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """The first two thirds and the last third of a text longer than `limit` characters."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n{text[head - limit :]}"


def readable(message: str, request: str, answer: str, asked: bool) -> dict[str, float]:
    """Features a person can read, by name; most are 0 or 1.

    Args:
        message: the user's next message.
        request: the request that the answer before it was for ("" when it is not known).
        answer: the answer, or its end ("" when it is not known).
        asked: the answer was a question, so saying it again, or "no, the other one", only answers it.
    """
    message = shortened(message)
    request = shortened(request, CONTEXT_CHARACTERS)
    end = answer.rstrip()[-CONTEXT_CHARACTERS:]
    found = dict(_found(message))
    said = prose(message)
    count = len(_TOKEN.findall(said))
    asks = float(asked or _ASKS.search(end[-250:]) is not None)
    alike = similarity(said, prose(request)) if len(words(said)) >= 2 else 0.0
    same_form = alike > 0.9 and similarity(message, request) < 0.95  # the same words about other code
    found |= {
        "trace": float(has_trace(message)),
        "repeats": max(0.0, alike - _ALIKE) / (1 - _ALIKE) * (not asked) * (not same_form),
        "repeats_all": float(alike > 0.95) * (not asked) * (not same_form),
        "alike": alike * (not asked) * (not same_form),
        "same_form": float(same_form),
        "question": float(said.rstrip().endswith(("?", "？"))),
        "length": math.log1p(count) / 4,
        "short": float(0 < count <= 4),
        "pasted_only": float(count == 0),
        "pasted": 1 - len(said) / max(1, len(message)),
    }
    complaint = float(any(found[name] for name in _COMPLAINTS))
    found |= {
        "complains": complaint,
        "only_work": found["asks_for_work"] * (1 - complaint) * (1 - found["refutes"]),
        "plain_report": found["reports"] * (1 - found["praise"]) * (1 - found["asks_for_work"]),
        "answer_asks": asks,
        "answer_claims": float(_CLAIMS.search(end) is not None),
        "asked_short": asks * found["short"],
        "asked_corrects": asks * found["corrects"],
        "asked_complains": asks * complaint,
    }
    before = _found(request)
    found |= {f"request.{name}": before[name] for name in _OF_REQUEST}
    found["request.complains"] = float(any(before[name] for name in _COMPLAINTS))
    return found


def ngrams(message: str) -> list[str]:
    """Words, pairs and triples of words of a message's prose, each once, in order; digits are all alike."""
    tokens = ["^", *("0" if t.isdigit() else t for t in _tokens(prose(shortened(message))))]
    found = (" ".join(tokens[i : i + n]) for n in (1, 2, 3) for i in range(n == 1, len(tokens) - n + 1))
    return list(dict.fromkeys(found))


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def interrupted(message: str) -> bool:
    """Whether the text is a client's note that its user stopped the agent."""
    return _INTERRUPTED.search(message) is not None
