"""Edits a demonstration can show: the right one, and plausible wrong ones, line by line.

An edit is a list of (old line, new line), each without its indentation, each old line unique in the
file. Uses what the person meant, as only demonstrations may.
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
_FAMILIES = (words.ARITHMETIC, words.COMPARISON, words.AUGMENTED)


def right(case: Case) -> Edit:
    """The lines that have to change for the wish to be met; [] where no such change is known."""
    if not case.intent.goal:
        return []
    pairs = zip(case.before.splitlines(), case.intent.goal.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in pairs if old != new]


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
    spot = next(i for i, (a, b) in enumerate(zip(old.split(), new.split(), strict=True)) if a != b)
    before, wanted = old.split()[spot], new.split()[spot]
    symbol = _NUMBER.search(before)
    pieces = old.split(" ")
    if symbol is None:
        pieces[spot] = _other_operator(before, wanted, random)
    else:
        value = number(random)
        while value in (symbol[0], *_NUMBER.findall(wanted)):
            value = number(random)
        pieces[spot] = _NUMBER.sub(value, before)
    return [(old, " ".join(pieces))]


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


def wrong_place(case: Case, random: Random) -> Edit:
    """A change like the one asked for, in a line that should have stayed."""
    changed = {old for old, _ in right(case)}
    lines = [line.strip() for line in case.before.splitlines()]
    candidates = [
        line
        for line in lines
        if line and line not in changed and case.before.count(line) == 1 and _OPERATOR.search(line + " ")
    ]
    random.shuffle(candidates)
    for line in candidates:
        if (varied := vary(line, "", random)) is not None:
            return [(line, varied)]
    return []


def stale(case: Case, random: Random) -> Edit:
    """A line as the file might have had it once: the edit cannot be made."""
    for old, new in right(case) or wrong_place(case, random):
        remembered = vary(old, new, random)
        if remembered is not None and remembered not in case.before:
            return [(remembered, new)]
    return []


def guess(case: Case, random: Random) -> Edit:
    """Some change in the function the request names, for want of knowing better."""
    body = case.before.split(f"def {case.intent.function}(")[-1].split("\n\n")[0].splitlines()[1:]
    lines = [line.strip() for line in body if case.before.count(line.strip()) == 1]
    random.shuffle(lines)
    for line in lines:
        if (varied := vary(line, "", random)) is not None:
            return [(line, varied)]
    return wrong_place(case, random)
