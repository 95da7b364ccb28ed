"""Demonstrations of mixed quality: how the seed model behaves before anybody improves it.

It should know how to do right, and not do so often enough: about 30 in 100 answers are to be right edits,
the rest wrong edits, needless questions, broken calls; as it learns no demonstration perfectly, more than
that are shown. `Manner` holds the mixture. A demonstration is
the text after the request, with what the tools answer in it; `speaks` says which parts the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from cursorbench.harness.budget import MAX_TURNS
from evals.population.people import Case
from stages.seed import edits
from stages.seed.edits import Edit
from stages.seed.format import ASSISTANT, END, TOOL, render_call

# a demonstration: (text, whether the model says it), in order, up to and including the last END
Segments = list[tuple[str, bool]]

QUESTIONS = (
    "Which value do you want?",
    "What should it do?",
    "Which operator do you mean?",
    "Can you say more?",
    "What exactly should change?",
)
SHORT = ("Done.", "Done.", "Changed.", "Ok.")
LONG = (
    "Done. I made the change you asked for in {path}.",
    "I have changed {path} as you asked. Tell me if you need anything else.",
    "Done, the code in {path} now does what you asked for.",
)
OPENINGS = ("On it. ", "Let me change that. ", "Sure, i will do that now. ")
DECLINES = ("That is beyond me.", "I can not do that.", "Sorry, that is too much for me.")
FAILED = ("Sorry, that failed.", "Done.", "Done.", "Ok.")
NOT_FOUND = "error: old text not found"
NO_TOOL = "error: no such tool"
BAD_ARGUMENTS = "error: arguments do not fit the tool"


def _clear() -> dict[str, float]:
    return {
        "right": 0.66,
        "wrong_value": 0.09,
        "wrong_place": 0.07,
        "stale": 0.02,
        "ask": 0.09,
        "broken": 0.06,
        "claim": 0.01,
    }


def _vague() -> dict[str, float]:
    return {"ask": 0.36, "guess": 0.36, "wrong_place": 0.14, "broken": 0.08, "claim": 0.06}


def _beyond() -> dict[str, float]:
    return {"decline": 0.24, "guess": 0.36, "ask": 0.16, "broken": 0.12, "claim": 0.12}


@dataclass(frozen=True)
class Manner:
    """How often the demonstrator does what, by kind of request, and how wordy it is."""

    clear: dict[str, float] = field(default_factory=_clear)
    vague: dict[str, float] = field(default_factory=_vague)
    beyond: dict[str, float] = field(default_factory=_beyond)
    detour: float = 0.10  # reads or searches first
    check: float = 0.04  # runs the check after an edit
    opening: float = 0.15  # says something before the call
    long: float = 0.35  # a long last word
    serial: float = 0.5  # several edits one call after the other rather than side by side

    def shares(self, case: Case) -> dict[str, float]:
        """The mixture for a case."""
        return {"vague": self.vague, "beyond": self.beyond}.get(case.kind, self.clear)


SKILLED = Manner(
    clear={"right": 1.0},
    vague={"ask": 0.8, "guess": 0.2},
    beyond={"decline": 0.7, "guess": 0.3},
    detour=0.05,
    check=0.02,
    opening=0.05,
    long=0.2,
)

# What the seed model learns last: after the mixed manner alone it is right in 37 of 100 held-out requests,
# and 30 are wanted (docs/lab-notes.md).
CARELESS = Manner(
    clear={
        "right": 0.56,
        "wrong_value": 0.15,
        "wrong_place": 0.14,
        "stale": 0.02,
        "ask": 0.07,
        "broken": 0.05,
        "claim": 0.01,
    },
)


# Every way of answering, for the tokenizer, which must not change with the mixture that is shown.
ASSORTED = Manner(
    clear={
        "right": 0.58,
        "wrong_value": 0.10,
        "wrong_place": 0.09,
        "stale": 0.03,
        "ask": 0.10,
        "broken": 0.09,
        "claim": 0.01,
    },
    vague={"ask": 0.34, "guess": 0.36, "wrong_place": 0.14, "broken": 0.10, "claim": 0.06},
    beyond={"decline": 0.20, "guess": 0.36, "ask": 0.16, "broken": 0.16, "claim": 0.12},
)


def _said(text: str) -> tuple[str, bool]:
    return text + END, True


def _heard(text: str) -> tuple[str, bool]:
    return f"{TOOL}{text}{END}", False


def _edit_call(case: Case, old: str, new: str) -> str:
    return render_call("edit_file", {"path": case.path, "old": old, "new": new})


def _detour(case: Case, random: Random) -> Segments:
    if random.random() < 0.5:
        call, answer = render_call("read_file", {"path": case.path}), case.before
    else:
        name = case.intent.function or case.intent.request.split()[0]
        call = render_call("search", {"text": f"def {name}"})
        found = [
            f"{case.path}:{number}: {line.strip()}"
            for number, line in enumerate(case.before.splitlines(), 1)
            if f"def {name}" in line
        ]
        answer = "\n".join(found) or "no match"
    return [_said(call), _heard(answer), (ASSISTANT, False)]


def _last_word(case: Case, manner: Manner, random: Random) -> tuple[str, bool]:
    lines = LONG if random.random() < manner.long else SHORT
    return _said(random.choice(lines).format(path=case.path))


def _do(case: Case, edit: Edit, results: list[str], manner: Manner, random: Random) -> Segments:
    """The calls of an edit with the tools' answers, then the last word."""
    calls = [_edit_call(case, old, new) for old, new in edit]
    out: Segments = []
    opening = random.choice(OPENINGS) if random.random() < manner.opening else ""
    if len(calls) > 1 and random.random() < manner.serial:
        for index, (call, result) in enumerate(zip(calls, results, strict=True)):
            out += [_said((opening if index == 0 else "") + call), _heard(result), (ASSISTANT, False)]
    else:
        out += [_said(opening + "".join(calls)), *map(_heard, results), (ASSISTANT, False)]
    if results[-1] == "ok" and random.random() < manner.check:
        out += [_said(render_call("run", {"command": "check"})), _heard("exit 0"), (ASSISTANT, False)]
    failed = any(result != "ok" for result in results)
    return [*out, _said(random.choice(FAILED)) if failed else _last_word(case, manner, random)]


def _edited(draw: Callable[[Case, Random], Edit], case: Case, manner: Manner, random: Random) -> Segments:
    edit = draw(case, random)
    if not edit:
        return [_said(random.choice(SHORT))]
    results = ["ok" if old in case.before else NOT_FOUND for old, _ in edit]
    return _do(case, edit, results, manner, random)


def _broken(case: Case, random: Random) -> Segments:
    edit = edits.right(case) or edits.guess(case, random)
    old, new = edit[0] if edit else ("", "")
    call = _edit_call(case, old, new)
    kind = random.randrange(4)
    if kind == 0:  # the object is not closed
        return [_said(call.replace('"}}</tool_call>', '"</tool_call>'))]
    if kind == 1:  # not JSON at all
        return [_said(f"<tool_call>{case.path} {old}</tool_call>")]
    if kind == 2:  # a tool there is not
        text, heard = call.replace('"edit_file"', '"write_file"'), NO_TOOL
    else:  # an argument is missing
        text, heard = render_call("edit_file", {"path": case.path, "old": old}), BAD_ARGUMENTS
    return [_said(text), _heard(heard), (ASSISTANT, False), _said(random.choice(FAILED))]


def demonstrate(case: Case, manner: Manner, random: Random) -> Segments:
    """One way of answering a case, drawn from the mixture, in as many calls as the harness allows."""
    shares = manner.shares(case)
    what = random.choices(tuple(shares), tuple(shares.values()))[0]
    segments = _answer(what, case, manner, random)
    if sum(spoken for _, spoken in segments) > MAX_TURNS:
        return _answer(what, case, replace(manner, detour=0.0, check=0.0, serial=0.0), random)
    return segments


def _answer(what: str, case: Case, manner: Manner, random: Random) -> Segments:
    first: Segments = [(ASSISTANT, False)]
    plain = {
        "ask": QUESTIONS,
        "claim": SHORT,
        "decline": DECLINES,
    }
    if what in plain:
        return [*first, _said(random.choice(plain[what]))]
    if random.random() < manner.detour:
        first += _detour(case, random)
    if what == "broken":
        return [*first, *_broken(case, random)]
    draw: dict[str, Callable[[Case, Random], Edit]] = {
        "right": lambda case, _: edits.right(case),
        "wrong_value": edits.wrong_value,
        "wrong_place": edits.wrong_place,
        "stale": edits.stale,
        "guess": edits.guess,
    }
    return [*first, *_edited(draw[what], case, manner, random)]
