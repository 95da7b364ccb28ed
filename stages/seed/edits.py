"""Edits a demonstration can show: the right one, and plausible wrong ones.

An edit is a list of (old text, new text), each old text unique in the file. A change inside a function
is shown from the function's `def` to the changed line, so that copying on from its name finds the line:
a model of a million parameters finds a name by copying, and a line by its function's name hardly ever
(docs/lab-notes.md). Uses what the person meant, as only demonstrations may.
"""

from __future__ import annotations

import re
from random import Random

from evals.population import words
from evals.population.files import number
from evals.population.people import Case

Edit = list[tuple[str, str]]

_OPERATOR = re.compile(r"(?<= )(\+=|-=|\*=|//|[<>=!]=|[<>+*-])(?= )")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+")
_WORD = re.compile(r"[a-z]+")
_PIECES = re.compile(r"\w+|[^\w\s]+|\s+")
_NAME = re.compile(r"def \w+")
_FAMILIES = (words.ARITHMETIC, words.COMPARISON, words.AUGMENTED)


def _span(lines: list[str], line: int) -> str:
    """The text from the `def` of the function that `line` stands in to the line's end."""
    first = line
    while lines[first].startswith(" "):
        first -= 1
    return "\n".join(lines[first : line + 1])


def _changed(case: Case) -> list[int]:
    pairs = zip(case.before.splitlines(), case.intent.goal.splitlines(), strict=True)
    return [index for index, (old, new) in enumerate(pairs) if old != new]


def right(case: Case) -> Edit:
    """The changes that have to be made for the wish to be met; [] where none is known.

    A function's new name is one edit of `def name` and one of each line that calls it.
    """
    if not case.intent.goal:
        return []
    old, new = case.before.splitlines(), case.intent.goal.splitlines()
    first, *others = _changed(case)
    for line in (first, *others):
        before, after = _NAME.match(old[line]), _NAME.match(new[line])
        if before and after and before[0] != after[0]:
            calls = [(old[i].strip(), new[i].strip()) for i in _changed(case) if i != line]
            return [(before[0], after[0]), *calls]
    last = others[-1] if others else first
    return [(_span(old, last), _span(new, last))]


def _other_operator(symbol: str, not_this: str, random: Random) -> str:
    family = next(family for family in _FAMILIES if symbol in family)
    return random.choice([value for value in family if value not in (symbol, not_this)])


def vary(line: str, avoid: str, random: Random) -> str | None:
    """The line with one operator or number changed, to something else than `avoid`; None if it has none."""
    spots = [*_OPERATOR.finditer(line), *_NUMBER.finditer(line)]
    if not spots:
        return None
    spot = random.choice(spots)
    for _ in range(8):
        value = number(random) if spot[0].isdigit() else _other_operator(spot[0], "", random)
        varied = line[: spot.start()] + value + line[spot.end() :]
        if varied not in (line, avoid):
            return varied
    return None


def wrong_value(case: Case, random: Random) -> Edit:
    """The right place, changed to something else than was asked."""
    edit = right(case)
    if not edit:
        return []
    if case.kind == "rename":
        return _wrong_name(case, edit, random)
    old, new = edit[0]
    pieces, wanted = _PIECES.findall(old), _PIECES.findall(new)
    spot = next(i for i, (a, b) in enumerate(zip(pieces, wanted, strict=True)) if a != b)
    value = pieces[spot]
    while value in (pieces[spot], wanted[spot]):
        value = (
            number(random) if pieces[spot].isdigit() else _other_operator(pieces[spot], wanted[spot], random)
        )
    return [(old, "".join([*pieces[:spot], value, *pieces[spot + 1 :]]))]


def _wrong_name(case: Case, edit: Edit, random: Random) -> Edit:
    """Only some of the places renamed, or to another name."""
    if len(edit) > 1 and random.random() < 0.6:
        return edit[: random.randrange(1, len(edit))]
    old_words = set(_WORD.findall(" ".join(old for old, _ in edit)))
    new_words = [word for _, new in edit for word in _WORD.findall(new) if word not in old_words]
    if not new_words:
        return edit[:-1]
    nouns = words.DOMAINS[case.person.domain][0]
    other = random.choice([noun for noun in nouns if noun not in old_words and noun not in new_words])
    target = random.choice(new_words)
    return [(old, re.sub(rf"(?<![a-z]){target}(?![a-z])", other, new)) for old, new in edit]


def _varied(case: Case, candidates: list[int], random: Random) -> Edit:
    """One operator or number changed in one of the lines, the first in random order that has any."""
    lines = case.before.splitlines()
    random.shuffle(candidates)
    for index in candidates:
        changed = vary(lines[index], "", random)
        if changed is not None:
            return [(_span(lines, index), _span([*lines[:index], changed, *lines[index + 1 :]], index))]
    return []


def wrong_place(case: Case, random: Random) -> Edit:
    """A change like the one asked for, in a line that should have stayed."""
    lines = case.before.splitlines()
    kept = set(_changed(case)) if case.intent.goal else set()
    return _varied(
        case, [i for i, line in enumerate(lines) if i not in kept and _OPERATOR.search(line + " ")], random
    )


def stale(case: Case, random: Random) -> Edit:
    """A text as the file might have had it once: the edit cannot be made."""
    for old, new in right(case) or wrong_place(case, random):
        remembered = vary(old, new, random)
        if remembered is not None and remembered not in case.before:
            return [(remembered, new)]
    return []


def guess(case: Case, random: Random) -> Edit:
    """Some change in the function the request names, for want of knowing better."""
    lines = case.before.splitlines()
    inside = [i for i in range(len(lines)) if _span(lines, i).startswith(f"def {case.intent.function}(")]
    return _varied(case, [i for i in inside if lines[i].startswith(" ")], random) or wrong_place(case, random)
