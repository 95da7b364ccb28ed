"""What kind of work a request is, by its own words alone: no word of the policy may choose its own baseline.

The first verb that begins a sentence decides ("please add ...", "can you fix ..."), and what it is about;
where there is none, what is said anywhere, kind by kind. The words, of sixteen languages, are in `work.toml`.
Not for: what a user thinks of an answer (`signals/followup`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stages.distill.text import column, has_trace, prose

VAGUE, NONE = "vague", "none"  # nothing is said that is known; there are no words
_SEEN = 1_000  # characters of prose: what is wanted is said at the beginning
_COMMAND = r"^\s*/[A-Za-z][\w:-]*[ \t]+"  # a client's, as Aider's `/ask`: what is behind it is what was asked
_OPENS = r"(?:^|[.!?;:,、，。！？…]\s*|\n\W*|\b\d{1,2}[.)]\s*)"
_BEGIN, _END = r"(?:^|[^\p{L}\p{N}_])", r"(?:[^\p{L}\p{N}_]|$)"  # of a word
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_ABOUT = 80  # characters behind a verb
_REPLY = 120  # characters: more than that says something else as well


@dataclass(frozen=True, slots=True)
class _Words:
    """What `work.toml` has, ready to look for.

    Attributes:
        verbs: kind by verb.
        told: a clause that begins with one of them.
        about: kinds or verbs, and what makes another kind of them when it is said behind the verb.
        said: what counts anywhere, by kind, in their order.
        fails: what is told of a failure.
        reply: a message that is nothing but an answer to the agent.
    """

    verbs: Mapping[str, str]
    told: str
    about: Sequence[tuple[str, Sequence[str], re.Pattern[str]]]
    said: Sequence[tuple[str, str]]
    fails: str
    reply: str


def kind_of_work(requests: Sequence[str]) -> list[str]:
    """For each request one of rename, test, document, fix, refactor, remove, create, change, question, vague,
    none, run (a command, a build, a commit) and reply (nothing but "yes", "continue", "B").
    """
    words = _words()
    spoken = column(requests).str.replace(_COMMAND, "")
    texts = column(prose(spoken.to_list())).str.slice(0, _SEEN).str.to_lowercase()
    kinds = [VAGUE if text else NONE for text in texts.str.strip_chars().to_list()]
    for kind, pattern in reversed(words.said):
        for row in texts.str.contains(pattern).arg_true():
            kinds[row] = kind
    told = [_clause(*one) for one in zip(texts.to_list(), texts.str.find(words.told).to_list(), strict=True)]
    # "it still fails. can you check ...?"
    fails = column([before for before, _, _ in told]).str.contains(words.fails).to_list()
    for row, ((_, verb, about), failing) in enumerate(zip(told, fails, strict=True)):
        if verb:
            kinds[row] = "fix" if failing else _told(verb, about)
    short = texts.str.strip_chars()
    for row in (short.str.contains(words.reply) & (short.str.len_chars() <= _REPLY)).arg_true():
        kinds[row] = "reply"
    return ["fix" if trace else kind for kind, trace in zip(kinds, has_trace(requests), strict=True)]


def _clause(text: str, at: int | None) -> tuple[str, str, str]:
    """What is said before the clause at that byte, its verb, and what follows that; empty ones for None."""
    if at is None:
        return "", "", ""
    verbs, rest = _words().verbs, text.encode()[at:].decode()
    found = next((word for word in _WORD.finditer(rest) if word[0] in verbs), None)
    if found is None:
        return "", "", ""
    return text[: len(text) - len(rest)], found[0], rest[found.end() :][:_ABOUT]


def _told(verb: str, about: str) -> str:
    """The kind of a request that begins with this verb, by what it is about."""
    words = _words()
    kind = words.verbs[verb]
    own = {kind, verb}
    return next((to for to, of, said in words.about if not own.isdisjoint(of) and said.search(about)), kind)


@cache
def _words() -> _Words:
    found = tomllib.loads(Path(__file__).with_name("work.toml").read_text(encoding="utf-8"))
    verbs = {verb: one["name"] for one in reversed(found["kind"]) for verb in one["verbs"].split()}
    polite, told = ("|".join(map(re.escape, one)) for one in (found["politeness"].split(), verbs))
    *kinds, reply = ((one["name"], _bounded("|".join(one["said"]))) for one in found["kind"])
    said = [(name, f"(?m){pattern}") for name, pattern in kinds]
    return _Words(
        verbs,
        rf"{_OPENS}(?:(?:{polite})[ \t,]+){{0,9}}(?:{told}){_END}",
        [(one["name"], one["of"].split(), re.compile(one["said"])) for one in found["about"]],
        said,
        dict(said)["fix"],
        reply[1],
    )


def _bounded(pattern: str) -> str:
    r"""Its `\b` by classes of characters: that one is slow in texts of other scripts than ASCII's."""
    return re.sub(r"\\b(?=[\w(])", lambda _: _BEGIN, pattern).replace(r"\b", _END)
